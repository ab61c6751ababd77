"""Batches whose update was not finite, set aside on disk so that they can be replayed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from spade_async.errors import WeightsError, boundary
from spade_async.transport.messages import TrainingBatch

_ARRAYS = (
    "offsets",
    "advantages",
    "staleness",
    "token_ids",
    "loss_mask",
    "generator_logprobs",
    "versions",
)


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
            "staleness_min": batch.staleness_min,
            "staleness_max": batch.staleness_max,
            "checkpoint": batch.checkpoint,
            "metrics": metrics,
        }
        temporary = root / f".{stem}.tmp.npz"
        np.savez(temporary, **arrays)
        os.replace(temporary, root / f"{stem}.npz")
        (root / f"{stem}.json").write_text(json.dumps(facts, indent=2) + "\n")
    return f"{stem}.npz"


def read_back(path: Path) -> TrainingBatch:
    """The batch that `set_aside` wrote, from the path of its npz.

    Raises:
        WeightsError: one of the two files is missing or damaged.
    """
    with boundary(WeightsError, f"reading {path}"):
        facts = json.loads(path.with_suffix(".json").read_text())
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in _ARRAYS}
        plain = {k: facts[k] for k in facts if k not in ("reason", "weights_before", "metrics")}
        return TrainingBatch(**plain, **arrays)
