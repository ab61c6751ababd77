"""The learner of a scripted run: takes its time, writes real files, reports like the real one.

No torch and no model. Batches are unpacked and checked, weight files and checkpoints are written,
committed, kept and resumed by the code of the real learner; only the update is a sleep.
"""

from __future__ import annotations

import importlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.disk.room import Room
from spade_async.engine.scripted_weights import NAME, digests, weights_of, write_weights
from spade_async.errors import ConfigError, WeightsError, boundary
from spade_async.grpo.samples import unpack, whole_ids
from spade_async.learner.checkpoint_folder import (
    SCHEMA,
    STATE_FACTS,
    Retention,
    checkpoint_name,
    committing,
    sweep,
)
from spade_async.learner.progress import UpdateCancelled
from spade_async.learner.quarantine import set_aside
from spade_async.learner.resume_point import ResumePoint
from spade_async.transport.messages import StepReport, TrainingBatch, WeightsPublished
from spade_async.types import PolicyVersion
from spade_async.weights.attestation import Attestation
from spade_async.weights.store import FileWeightStore, Published

log = logging.getLogger(__name__)

_TICK_S = 0.05


class ScriptedLearner:
    """The same interface as `learner.Learner`."""

    def __init__(self, config: Config, run_dir: Path, point: ResumePoint, store: FileWeightStore):
        """Read the checkpoint, when there is one.

        Raises:
            WeightsError: it is missing, damaged or of another step.
            ConfigError: `scripted.learner_delay` cannot be imported.
        """
        self._config = config
        self._script = config.scripted
        self._folder = RunFolder(run_dir)
        self._store = store
        self._delay_s = _delay(config.scripted.learner_delay)
        self._last_report: StepReport | None = None
        self.room = Room()
        """What every write goes through."""
        sweep(self._folder.checkpoints)
        if point.checkpoint is not None:
            _check(self._folder.checkpoints / point.checkpoint, point.version.step)
        self.version = point.version
        protected = {*point.keep_checkpoints, *([point.checkpoint] if point.checkpoint else [])}
        self._retention = Retention(self._folder.checkpoints, config.checkpoint.keep, protected)

    def start(self) -> WeightsPublished:
        """See `Learner.start`."""
        published = self.room.write(f"weights {self.version}", self._publish)
        return WeightsPublished(
            version=self.version.packed,
            location=published.location,
            digest=published.digest,
            attestation=self._attestation(),
        )

    def train(
        self,
        batch: TrainingBatch,
        wait_s: float = 0.0,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> StepReport:
        """See `Learner.train`; the same errors for the same reasons."""
        began_s = time.perf_counter()
        last = self._last_report
        if last is not None and (batch.branch, batch.step) == (last.branch, last.step):
            return last
        before = self.version
        if (batch.branch, batch.step) != (before.branch, before.step + 1):
            raise ValueError(
                f"batch {batch.branch}.{batch.step} does not follow the learner's version {before}"
            )
        unpack(batch)
        num_tokens = int(batch.loss_mask.sum())
        self._work(began_s + self.seconds(batch.step, num_tokens), should_stop)
        applied = batch.step not in self._script.nonfinite_steps
        metrics = {
            "learner/tokens": float(num_tokens),
            "learner/samples": float(len(whole_ids(batch.sample_ids))),
            "learner/nonfinite": float(not applied),
            "learner/update_s": time.perf_counter() - began_s,
        }
        quarantine = None
        if not applied:
            reason = "scripted.nonfinite_steps names this step"
            quarantine = self.room.write(
                f"batch {batch.branch}.{batch.step}, set aside",
                lambda: set_aside(self._folder.quarantine, batch, reason, metrics, str(before)),
            )
        self.version = PolicyVersion(batch.branch, batch.step)
        checkpoint = None
        if batch.checkpoint:
            checkpoint_s = time.perf_counter()
            checkpoint = self.save()
            metrics["learner/checkpoint_s"] = time.perf_counter() - checkpoint_s
        published = self.room.write(f"weights {self.version}", self._publish)
        metrics["learner/publish_s"] = published.seconds
        self._last_report = StepReport(
            branch=batch.branch,
            step=batch.step,
            applied=applied,
            metrics=metrics,
            sample_ids=whole_ids(batch.sample_ids),
            checkpoint=checkpoint,
            quarantine=quarantine,
            location=published.location,
            digest=published.digest,
            attestation=self._attestation(),
            publish_s=published.seconds,
            busy_s=time.perf_counter() - began_s,
            wait_s=wait_s,
        )
        log.info("step %s: %d samples, scripted", self.version, len(whole_ids(batch.sample_ids)))
        return self._last_report

    def seconds(self, step: int, num_tokens: int) -> float:
        """How long an update takes."""
        script = self._script
        base_s = script.learner_s + script.learner_token_s * num_tokens
        change = script.learner_change_at_step
        if change is not None and step >= change:
            base_s *= script.learner_change_factor
        return base_s + self._delay_s(step)

    def _attestation(self) -> dict[str, Any]:
        """Digests alone: sampling a probe would take a slot and the time of its tokens."""
        if not self._config.weights.attest:
            return {}
        return Attestation(digests(weights_of(self.version)[NAME])).as_message()

    def _work(self, until_s: float, should_stop: Callable[[], bool]) -> None:
        """Sleep until then, in pieces as long as a micro-batch."""
        while True:
            if should_stop():
                raise UpdateCancelled
            left_s = until_s - time.perf_counter()
            if left_s <= 0:
                return
            time.sleep(min(left_s, _TICK_S))

    def _publish(self) -> Published:
        size = self._script.weights_bytes
        return self._store.publish_file(
            self.version, lambda path: write_weights(path, self.version, size)
        )

    def close(self) -> None:
        """Nothing to let go of."""

    def save(self) -> str:
        """See `Learner.save`."""
        return self.room.write(f"checkpoint {self.version}", self._save)

    def _save(self) -> str:
        root, version = self._folder.checkpoints, self.version
        name = checkpoint_name(version)
        facts = {"schema": SCHEMA, "branch": version.branch, "step": version.step}
        what = f"writing checkpoint {name} to {root}"
        with boundary(WeightsError, what), committing(root, name) as folder:
            write_weights(folder / "model.safetensors", version, self._script.weights_bytes)
            (folder / STATE_FACTS).write_text(json.dumps(facts, indent=2) + "\n")
        self._retention.added(name)
        return name


def _check(folder: Path, step: int) -> None:
    with boundary(WeightsError, f"checkpoint {folder} cannot be loaded"):
        facts = json.loads((folder / STATE_FACTS).read_text())
    if facts["step"] != step:
        raise WeightsError(
            f"checkpoint {folder.name} is of step {facts['step']}, the ledger wants step {step}: "
            "the run folder was changed by hand"
        )


def _delay(name: str) -> Callable[[int], float]:
    """The function `scripted.learner_delay` names; none takes no time."""
    if not name:
        return lambda step: 0.0
    module, _, function = name.partition(":")
    try:
        found: Callable[[int], float] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as cause:
        raise ConfigError(f"scripted.learner_delay={name!r} cannot be imported: {cause}") from cause
    return found
