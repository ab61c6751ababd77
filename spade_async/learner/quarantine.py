"""Batches whose update was not finite, set aside on disk with all that is needed to replay them.

``quarantine/batch-B-S.npz`` holds the arrays (no pickle), ``.json`` the rest, ``.state/`` is a
checkpoint of model, optimiser and random state as the batch met them. The configuration is that of
the run folder. `replay.py` reads all of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from spade_async.errors import WeightsError, boundary
from spade_async.learner.checkpoint_folder import committing
from spade_async.transport.messages import TrainingBatch

_ARRAYS = (
    "offsets",
    "advantages",
    "staleness",
    "token_ids",
    "loss_mask",
    "generator_logprobs",
    "versions",
    "experts",
)
_NOT_OF_THE_BATCH = frozenset({"reason", "weights_before", "metrics"})


def set_aside(
    root: Path, batch: TrainingBatch, reason: str, metrics: dict[str, float], weights_before: str
) -> str:
    """Write ``batch-B-S.npz`` (arrays, no pickle) and ``.json`` (the rest); returns the npz's name.

    Args:
        root: the run's ``quarantine/``; made when missing.
        batch: as it came.
        reason: what was not finite.
        metrics: of the update that was not applied.
        weights_before: version that the batch met, e.g. ``"0.11"``.
    """
    stem = f"batch-{batch.branch}-{batch.step}"
    with boundary(WeightsError, f"writing {stem} to {root}"):
        root.mkdir(parents=True, exist_ok=True)
        arrays = {name: getattr(batch, name) for name in _ARRAYS}
        facts = {
            "branch": batch.branch,
            "step": batch.step,
            "reason": reason,
            "weights_before": weights_before,
            "sample_ids": batch.sample_ids,
            "roles": batch.roles,
            "groups": batch.groups,
            "worths": batch.worths,
            "staleness_min": batch.staleness_min,
            "staleness_max": batch.staleness_max,
            "checkpoint": batch.checkpoint,
            "metrics": metrics,
        }
        temporary = root / f".{stem}.tmp.npz"
        try:
            np.savez(temporary, **arrays)
            os.replace(temporary, root / f"{stem}.npz")
        finally:
            temporary.unlink(missing_ok=True)
        (root / f"{stem}.json").write_text(json.dumps(facts, indent=2) + "\n")
    return f"{stem}.npz"


def state_folder(path: Path) -> Path:
    """Folder of the state that the batch at `path` (its npz) met."""
    return path.with_suffix(".state")


def keep_state(
    root: Path, batch_name: str, same_state: Path | None, save: Callable[[Path], None]
) -> Path:
    """Put the state the batch met beside it; returns the folder.

    Args:
        root: the run's ``quarantine/``.
        batch_name: what `set_aside` returned.
        same_state: a checkpoint with exactly this state, whose files are linked (they cost nothing
            until the checkpoint is removed); None when there is none.
        save: writes the state into the folder it is given.
    """
    name = state_folder(Path(batch_name)).name
    with boundary(WeightsError, f"writing {name} to {root}"), committing(root, name) as folder:
        if same_state is None or not _linked(same_state, folder):
            save(folder)
    return root / name


def _linked(source: Path, target: Path) -> bool:
    """Whether all files could be linked: not across file systems, nor when it is being removed."""
    try:
        for path in source.iterdir():
            os.link(path, target / path.name)
    except OSError:
        for path in target.iterdir():
            path.unlink()
        return False
    return any(target.iterdir())


def read_back(path: Path) -> TrainingBatch:
    """The batch that `set_aside` wrote, from the path of its npz.

    Raises:
        WeightsError: one of the two files is missing or damaged.
    """
    facts = read_facts(path)
    with boundary(WeightsError, f"reading {path}"):
        with np.load(path, allow_pickle=False) as stored:
            # One that an earlier version set aside has no experts.
            arrays = {name: stored[name] for name in _ARRAYS if name in stored}
        plain = {k: facts[k] for k in facts if k not in _NOT_OF_THE_BATCH}
        return TrainingBatch(**plain, **arrays)


def read_facts(path: Path) -> dict[str, Any]:
    """The plain facts of a batch set aside: reason, weights_before, metrics and its fields.

    Raises:
        WeightsError: missing or damaged.
    """
    with boundary(WeightsError, f"reading {path.with_suffix('.json')}"):
        facts = json.loads(path.with_suffix(".json").read_text())
        if not isinstance(facts, dict):
            raise ValueError("it holds no table")
        return facts
