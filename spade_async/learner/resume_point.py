"""Where a learner has to begin, as the coordinator's welcome says. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade_async.errors import WeightsError
from spade_async.types import PolicyVersion


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where the coordinator wants the learner to stand: `Welcome.resume`, checked."""

    version: PolicyVersion
    """Version under which the loaded weights are published; the branch may be newer than the
    checkpoint's."""
    model_folder: Path
    """Start model: weights when there is no checkpoint, tokenizer files, KL reference."""
    checkpoint: str | None
    """Folder name under checkpoints/."""
    keep_checkpoints: tuple[str, ...]
    """Names the ledger still refers to."""

    @classmethod
    def of(cls, resume: dict[str, Any]) -> ResumePoint:
        """Check the fields.

        Raises:
            WeightsError: one is missing.
        """
        try:
            checkpoint = resume["checkpoint"]
            return cls(
                version=PolicyVersion(int(resume["branch"]), int(resume["step"])),
                model_folder=Path(resume["model_folder"]),
                checkpoint=None if checkpoint is None else str(checkpoint),
                keep_checkpoints=tuple(resume.get("keep_checkpoints", ())),
            )
        except KeyError as cause:
            raise WeightsError(f"the coordinator's welcome lacks {cause.args[0]!r}") from cause
