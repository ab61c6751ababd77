"""`supervisor.*`: parts that die or hang (docs/lives.md)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from spade_async.config.section import Section


class SupervisorConfig(Section):
    """Parts that die or hang; see docs/lives.md."""

    max_deaths: int = Field(5, ge=1, le=1_000_000)
    """Deaths from one cause (kind of part, and exit code, signal or exception), without a new
    learner step between, that end the run; fewer are answered by a restart."""
    backoff_s: float = Field(0.5, ge=0.0, le=3600.0)
    """Pause before the first restart; it doubles with each death from the same cause."""
    backoff_max_s: float = Field(30.0, ge=0.0, le=86_400.0)
    """Longest pause before a restart."""
    on_hang: Literal["restart", "stop", "report"] = "restart"
    """After the report of a hang: kill and restart the part, end the run, or nothing."""
    silent_s: float = Field(60.0, ge=5.0, le=86_400.0)
    """A part without a word (heartbeats come once a second) hangs after this long."""
    starting_s: float = Field(600.0, ge=5.0, le=86_400.0)
    """The same for a part that starts: imports, model, checkpoint."""
    loading_weights_s: float = Field(300.0, ge=5.0, le=86_400.0)
    """Longest loading of one weight set."""
    working_s: float = Field(300.0, ge=5.0, le=86_400.0)
    """A part that works hangs when its progress counter stands still for this long."""
    stalled_s: float = Field(1200.0, ge=5.0, le=864_000.0)
    """All parts hang when none of them makes progress for this long, whatever they wait for."""

    @model_validator(mode="after")
    def _longest(self) -> Self:
        if self.backoff_s > self.backoff_max_s:
            raise ValueError(
                f"supervisor.backoff_s={self.backoff_s} is above supervisor.backoff_max_s="
                f"{self.backoff_max_s}: lower the one or raise the other"
            )
        return self
