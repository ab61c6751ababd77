"""Runs a step that was trained again, alone, on the CPU; nothing in the run folder changes.

Its batch comes from the ledger, which keeps the tokens of the newest steps, and the weights it met
from the checkpoint before it. When that one is gone, from an older one: the steps between are
trained again first.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from spade_async.config.correction import RULES
from spade_async.config.load import load_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.disk.manifest import damage
from spade_async.errors import RunFolderError
from spade_async.grpo.samples import TrainSample, pack, unpack
from spade_async.learner.checkpoint import load_checkpoint
from spade_async.learner.shares import Shares, shares
from spade_async.learner.state import LearnerState, load_start_model
from spade_async.learner.update import Updater
from spade_async.ledger import LedgerReader
from spade_async.ledger.rows import BatchRow, BatchSample
from spade_async.transport.messages import TrainingBatch
from spade_async.types import PolicyVersion, Role


@dataclass(frozen=True, slots=True)
class Rerun:
    """A trained step, sample by sample."""

    branch: int
    step: int
    checkpoint: str | None
    """It was loaded; None: the start model."""
    trained_again: int
    """Steps between that and this one."""
    found: Shares
    loss_then: float | None
    """In the run; None when it is not in the ledger."""
    grad_norm_then: float | None


def rerun(run_dir: Path, step: int, model_folder: Path) -> Rerun:
    """Compute a trained step again.

    Args:
        run_dir: the run folder.
        step: of the surviving history.
        model_folder: start model of the run.

    Raises:
        RunFolderError: no such step, its tokens have left the ledger, or no checkpoint before it.
        WeightsError: a checkpoint is damaged.
    """
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    config, folder = load_resolved(run_dir), RunFolder(run_dir)
    torch.set_num_threads(config.learner.threads)
    with LedgerReader.open(folder.ledger) as ledger:
        steps = {row.step: row for row in ledger.batches() if row.state == "consumed"}
        if step not in steps:
            have = f"{min(steps)} to {max(steps)}" if steps else "none"
            raise RunFolderError(f"{run_dir} has no trained step {step}: it has {have}")
        start, name = _start(folder, ledger, step)
        batches = [_samples(run_dir, ledger, config, steps[n]) for n in range(start + 1, step + 1)]
        metrics = next((row.metrics for row in ledger.steps() if row.step == step), {})
    if name is None:
        state = LearnerState.create(model_folder, config.learner, PolicyVersion(0, 0))
    else:
        state = load_checkpoint(folder.checkpoints / name, config.learner)
    start_model = load_start_model(config, model_folder)
    updater = Updater(state, config, start_model)
    for number, samples in enumerate(batches[:-1], start + 1):
        updater.update(samples, number)
    return Rerun(
        branch=steps[step].branch,
        step=step,
        checkpoint=name,
        trained_again=step - start - 1,
        found=shares(state, updater, config, batches[-1]),
        loss_then=metrics.get("learner/loss"),
        grad_norm_then=metrics.get("learner/grad_norm"),
    )


def _start(folder: RunFolder, ledger: LedgerReader, step: int) -> tuple[int, str | None]:
    """Step and name of the newest whole checkpoint before a step; (0, None) is the start model."""
    named = [
        (row.version.step, row.checkpoint)
        for row in ledger.versions()
        if not row.is_abandoned and row.checkpoint is not None and row.version.step < step
    ]
    for start, name in sorted(named, reverse=True):
        path = folder.checkpoints / name
        if path.is_dir() and damage(path) is None:
            return start, name
    return 0, None


def _samples(
    run_dir: Path, ledger: LedgerReader, config: Config, row: BatchRow
) -> list[TrainSample]:
    """A batch as the learner got it.

    Raises:
        RunFolderError: tokens of it have left the ledger.
    """
    groups = {name: n for n, name in enumerate(dict.fromkeys(s.group_id for s in row.samples))}
    samples = [_sample(ledger, sample, groups[sample.group_id]) for sample in row.samples]
    kept = [sample for sample in samples if sample is not None]
    if len(kept) < len(samples):
        raise RunFolderError(
            f"{run_dir}: step {row.step} is needed and the tokens of {len(samples) - len(kept)} of "
            f"its {len(samples)} samples have left the ledger; a run keeps those of about its "
            f"newest checkpoint.every * checkpoint.keep + 8 steps "
            f"({config.checkpoint.every * config.checkpoint.keep + 8} here): take a later step, or "
            "raise checkpoint.keep in the next run"
        )
    batch = TrainingBatch(
        branch=row.branch, step=row.step, checkpoint=False, **pack(kept, finite=False)
    )
    return unpack(batch, needs_logprobs=RULES[config.learner.correction.rule].uses_generator)


def _sample(ledger: LedgerReader, sample: BatchSample, group: int) -> TrainSample | None:
    trace, row = ledger.trace(sample.sample_id), ledger.sample(sample.sample_id)
    if trace is None or row is None:
        return None
    return TrainSample(
        sample_id=sample.sample_id,
        role=Role(row.role),
        advantage=sample.advantage,
        staleness=sample.staleness,
        trace=trace,
        group=group,
        worth=row.worth,
    )
