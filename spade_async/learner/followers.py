"""What ranks but the first do: the same calls on the same batch, in the same order.

Before each call rank 0 broadcasts what it is; the batch travels as the link encodes it. All ranks
agree between two micro-batches whether to go on (`update.py`), so a cancelled step ends on all.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spade_async.config.load import load_resolved
from spade_async.config.schema import Config
from spade_async.disk.room import Room
from spade_async.learner.learner import Learner
from spade_async.learner.progress import UpdateCancelled
from spade_async.learner.ranks import Ranks, join, leave
from spade_async.learner.resume_point import ResumePoint
from spade_async.transport.codec import Envelope, decode, encode
from spade_async.transport.messages import StepReport, TrainingBatch, WeightsPublished
from spade_async.transport.part import Part
from spade_async.types import PolicyVersion
from spade_async.weights.folder import weights_folder
from spade_async.weights.store import FileWeightStore

log = logging.getLogger(__name__)

_MAX_BYTES = 1 << 40


class LeadingLearner:
    """Rank 0's learner, which takes the other ranks along; see `process.TrainsBatches`."""

    def __init__(
        self, config: Config, run_dir: Path, point: ResumePoint, store: FileWeightStore
    ) -> None:
        """Join the ranks and load; the others load the same.

        Raises:
            WeightsError: model or checkpoint is missing, damaged or of another step.
        """
        self._ranks = join(config.learner.device)
        self._is_apart = False
        """A call did not end as it should: the others are not where we are."""
        self._tell("load", point=_plain(point))
        self._learner = Learner(config, run_dir, point, store)
        self._is_apart = False

    @property
    def version(self) -> PolicyVersion:
        """What is loaded now."""
        return self._learner.version

    @property
    def room(self) -> Room:
        """What rank 0's writes go through."""
        return self._learner.room

    def start(self) -> WeightsPublished:
        """See `Learner.start`."""
        self._tell("start")
        published = self._learner.start()
        self._is_apart = False
        return published

    def train(
        self, batch: TrainingBatch, wait_s: float, should_stop: Callable[[], bool]
    ) -> StepReport:
        """See `Learner.train`."""
        body, block = encode(Envelope("learner", batch, seq=1), _MAX_BYTES)
        self._tell("train", bytes(body), bytes(block))
        report = self._learner.train(batch, wait_s, should_stop)
        self._is_apart = False
        return report

    def save(self) -> str:
        """See `Learner.save`."""
        self._tell("save")
        name = self._learner.save()
        self._is_apart = False
        return name

    def close(self) -> None:
        """Let the others leave, unless they did or will by themselves."""
        if not self._is_apart:
            # A rank that died cannot be told.
            with contextlib.suppress(RuntimeError):
                self._tell("stop")
        leave()

    def _tell(self, what: str, body: bytes = b"", block: bytes = b"", **facts: Any) -> None:
        head = json.dumps({"do": what, "body": len(body), **facts}).encode()
        self._is_apart = True
        self._ranks.broadcast(len(head).to_bytes(8, "little") + head + body + block)


def follow(part: Part) -> int:
    """Be one of the other ranks until rank 0 leaves; returns the exit status."""
    # Rank 0 is told to stop, and tells us.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    config = load_resolved(part.run_dir)
    ranks = join(config.learner.device)
    try:
        _follow(config, part.run_dir, ranks)
    except UpdateCancelled:
        log.info("rank %d leaves: the running step was cancelled", ranks.rank)
    leave()
    return 0


def _follow(config: Config, run_dir: Path, ranks: Ranks) -> None:
    learner: Learner | None = None
    while True:
        facts, body, block = _heard(ranks.broadcast())
        what = facts["do"]
        if what == "stop":
            return
        if what == "load":
            store = FileWeightStore(weights_folder(config, run_dir), config.weights.keep)
            learner = Learner(config, run_dir, ResumePoint.of(facts["point"]), store)
            continue
        assert learner is not None, f"told to {what} before load"
        if what == "start":
            learner.start()
        elif what == "save":
            learner.save()
        else:
            batch = decode((body, block), _MAX_BYTES).message
            assert isinstance(batch, TrainingBatch)
            learner.train(batch)


def _heard(message: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    begin = 8 + int.from_bytes(message[:8], "little")
    facts: dict[str, Any] = json.loads(message[8:begin])
    end = begin + facts["body"]
    return facts, message[begin:end], message[end:]


def _plain(point: ResumePoint) -> dict[str, Any]:
    """The fields that `ResumePoint.of` reads."""
    return {
        "branch": point.version.branch,
        "step": point.version.step,
        "model_folder": str(point.model_folder),
        "checkpoint": point.checkpoint,
        "keep_checkpoints": list(point.keep_checkpoints),
    }
