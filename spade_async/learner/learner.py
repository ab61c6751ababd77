"""The learner without its process: start, train a batch, checkpoint, publish, report.

Steps 10 and 11 of the data flow. Synchronous on purpose; `process.py` runs it in a thread and does
the talking.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from spade_async.config.correction import RULES
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.disk.room import Room
from spade_async.errors import WeightsError
from spade_async.grpo.samples import NonFiniteSample, unpack, whole_ids
from spade_async.learner.attest import attestation
from spade_async.learner.checkpoint import load_checkpoint, save_checkpoint, write_state
from spade_async.learner.checkpoint_folder import Retention, checkpoint_name, sweep
from spade_async.learner.quarantine import keep_state, set_aside, state_folder
from spade_async.learner.ranks import ranks
from spade_async.learner.resume_point import ResumePoint
from spade_async.learner.state import LearnerState, load_start_model
from spade_async.learner.update import Updater, UpdateResult
from spade_async.seeds import derive
from spade_async.transport.messages import StepReport, TrainingBatch, WeightsPublished
from spade_async.types import PolicyVersion
from spade_async.weights.store import Published, WeightStore

log = logging.getLogger(__name__)


class Learner:
    """Owns the trained state of a run. Made by `start`-ing once, then `train` per batch."""

    def __init__(self, config: Config, run_dir: Path, point: ResumePoint, store: WeightStore):
        """Load the model and, from a checkpoint, everything else.

        Raises:
            WeightsError: model or checkpoint is missing, damaged or of another step.
        """
        self._config = config
        self._folder = RunFolder(run_dir)
        self._point = point
        self._store = store
        self._last_report: StepReport | None = None
        self.room = Room()
        """What every write goes through."""
        self._needs_logprobs = RULES[config.learner.correction.rule].uses_generator
        self._same_state: Path | None = None
        """Folder that holds the present state, since the last update that was not applied."""
        if ranks().is_leader:
            sweep(self._folder.checkpoints)
        torch.manual_seed(derive(config.run.seed, "learner"))
        self.state = self._load()
        self._ranks = self.state.ranks
        self._updater = Updater(self.state, config, load_start_model(config, point.model_folder))
        protected = {*point.keep_checkpoints, *([point.checkpoint] if point.checkpoint else [])}
        self._retention = Retention(self._folder.checkpoints, config.checkpoint.keep, protected)

    @property
    def version(self) -> PolicyVersion:
        """What is loaded now."""
        return self.state.version

    def start(self) -> WeightsPublished:
        """Publish the loaded weights under the resume version: the sign that training can begin."""
        published, attested = self._publish()
        return WeightsPublished(
            version=self.state.version.packed,
            location=published.location,
            digest=published.digest,
            attestation=attested,
        )

    def train(
        self,
        batch: TrainingBatch,
        wait_s: float = 0.0,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> StepReport:
        """One step; a batch that was already trained gives its report again.

        Args:
            batch: must produce the step after the present one, in the same branch.
            wait_s: how long the learner waited for it, for the report.
            should_stop: asked between micro-batches.

        Raises:
            ValueError: the batch is malformed or not the next one (a fault of ours).
            UpdateCancelled: `should_stop` became true; nothing changed.
            WeightsError: weights or checkpoint cannot be written.
        """
        began = time.perf_counter()
        last = self._last_report
        if last is not None and (batch.branch, batch.step) == (last.branch, last.step):
            log.info("batch %d.%d came again; sending its report again", batch.branch, batch.step)
            return last
        before = self.state.version
        if (batch.branch, batch.step) != (before.branch, before.step + 1):
            raise ValueError(
                f"batch {batch.branch}.{batch.step} does not follow the learner's version {before}"
            )
        result = self._update(batch, should_stop)
        metrics = dict(result.metrics)
        quarantine = None
        if not result.applied:
            quarantine = self.room.write(
                f"batch {batch.branch}.{batch.step}, set aside",
                lambda: self._set_aside(batch, str(result.reason), metrics),
            )
        else:
            self._same_state = None
        self.state.version = PolicyVersion(batch.branch, batch.step)
        checkpoint = None
        if batch.checkpoint:
            checkpoint_began = time.perf_counter()
            checkpoint = self.save()
            metrics["learner/checkpoint_s"] = time.perf_counter() - checkpoint_began
        published, attested = self._publish()
        metrics["learner/publish_s"] = published.seconds
        if published.location:
            metrics["learner/publish_bytes"] = float(Path(published.location).stat().st_size)
        self._last_report = StepReport(
            branch=batch.branch,
            step=batch.step,
            applied=result.applied,
            metrics=metrics,
            sample_ids=whole_ids(batch.sample_ids),
            checkpoint=checkpoint,
            quarantine=quarantine,
            location=published.location,
            digest=published.digest,
            attestation=attested,
            publish_s=published.seconds,
            busy_s=time.perf_counter() - began,
            wait_s=wait_s,
            token_logprobs=result.learned.logprobs,
            token_weights=result.learned.weights,
        )
        log.info(
            "step %s: %d samples, loss %s, busy %.2f s",
            self.state.version,
            len(whole_ids(batch.sample_ids)),
            metrics.get("learner/loss"),
            self._last_report.busy_s,
        )
        return self._last_report

    def save(self) -> str:
        """Write a checkpoint of the present state and remove what is no longer kept; its name.

        Raises:
            WeightsError: it cannot be written.
        """
        name = self.room.write(f"checkpoint {self.state.version}", self._save)
        if self._ranks.is_leader:
            self._retention.added(name)
        return name

    def close(self) -> None:
        """Nothing to let go of."""

    def _save(self) -> str:
        return save_checkpoint(self._folder.checkpoints, self.state, self._point.model_folder)

    def _publish(self) -> tuple[Published, dict[str, Any]]:
        """The weights written for the generators, and what they must show where they are loaded.

        Ranks but the first give what nobody reads.
        """
        version, kind = self.state.version, self._config.engine.kind
        if self._config.learner.lora.pushes_adapter:
            tensors = self.state.published_adapter()
        else:
            tensors = self.state.published_tensors(
                file_names=kind == "vllm", widened=kind == "builtin"
            )
        published = Published("", "", 0.0)
        if self._ranks.is_leader:
            published = self.room.write(
                f"weights {version}", lambda: self._store.publish(version, tensors)
            )
        if not self._config.weights.attest:
            return published, {}
        # The built-in engine computes in float32.
        same_passes = self._config.learner.dtype == "float32" or kind == "vllm"
        found = attestation(self.state, tensors, self._config.run.seed, with_probe=same_passes)
        return published, found.as_message()

    def _set_aside(self, batch: TrainingBatch, reason: str, metrics: dict[str, float]) -> str:
        """Keep the batch and the state it met, which is still the present one."""
        root, before = self._folder.quarantine, self.state.version
        log.warning("step %d: update set aside, %s", batch.step, reason)
        if not self._ranks.is_alone:
            return self._set_aside_together(batch, reason, metrics)
        name = set_aside(root, batch, reason, metrics, str(before))
        checkpoint = self._folder.checkpoints / checkpoint_name(before)
        same = checkpoint if checkpoint.is_dir() else self._same_state
        tokenizer = self._point.model_folder
        self._same_state = keep_state(
            root, name, same, lambda folder: write_state(folder, self.state, tokenizer)
        )
        return name

    def _set_aside_together(
        self, batch: TrainingBatch, reason: str, metrics: dict[str, float]
    ) -> str:
        """The batch by rank 0, and the state it met as a checkpoint of all ranks' slices.

        A replay is of one process: it loads whoever's slices.
        """
        root, before = self._folder.quarantine, self.state.version
        name = state_folder(Path(f"batch-{batch.branch}-{batch.step}.npz")).name
        save_checkpoint(root, self.state, self._point.model_folder, name)
        if not self._ranks.is_leader:
            return ""
        return set_aside(root, batch, reason, metrics, str(before))

    def _update(self, batch: TrainingBatch, should_stop: Callable[[], bool]) -> UpdateResult:
        try:
            samples = unpack(batch, needs_logprobs=self._needs_logprobs)
        except NonFiniteSample as cause:
            # A NaN from a generator costs this batch, not the run.
            return UpdateResult(False, str(cause), None, {"learner/nonfinite": 1.0})
        result = self._updater.update(samples, batch.step, should_stop)
        if result.skipped is not None:
            log.warning("step %d: nothing to apply, %s", batch.step, result.skipped)
        return result

    def _load(self) -> LearnerState:
        point = self._point
        if point.checkpoint is None:
            return LearnerState.create(point.model_folder, self._config.learner, point.version)
        folder = self._folder.checkpoints / point.checkpoint
        state = load_checkpoint(folder, self._config.learner)
        if state.version.step != point.version.step:
            raise WeightsError(
                f"checkpoint {point.checkpoint} is of step {state.version.step}, the ledger wants "
                f"step {point.version.step}: the run folder was changed by hand"
            )
        state.version = point.version
        return state
