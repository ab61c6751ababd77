"""The learner's process: talks to the coordinator, works in a thread.

    receive loop  --TrainingBatch-->  queue  -->  work thread: Learner.train  --> StepReport --> ack
        |-- Stop(finish): leave after the step that is running, its report flushed
        `-- Stop(at once), SIGTERM: cancel between two micro-batches, nothing of that step applied

The batch is acknowledged once its report is in the link's hands: whoever dies in between gets the
batch, or the report, again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from spade_async.cluster.turns import DeviceTurn
from spade_async.config.load import load_resolved
from spade_async.config.schema import Config
from spade_async.disk.room import Room, WaitCancelled
from spade_async.errors import EXIT_REFUSED, SpadeError, WeightsError, exit_status
from spade_async.learner.launch import part_pid
from spade_async.learner.progress import Progress, UpdateCancelled
from spade_async.learner.resume_point import ResumePoint
from spade_async.learner.scripted import ScriptedLearner
from spade_async.telemetry import stacks
from spade_async.transport.heartbeat import HeartbeatThread
from spade_async.transport.link import Peer, Received
from spade_async.transport.messages import (
    CheckpointSaved,
    Hello,
    ProcessFailed,
    SaveCheckpoint,
    StepReport,
    Stop,
    TrainingBatch,
    WeightsPublished,
)
from spade_async.transport.part import Part
from spade_async.types import PolicyVersion
from spade_async.weights.folder import weights_folder
from spade_async.weights.store import FileWeightStore

log = logging.getLogger(__name__)

T = TypeVar("T")

FLUSH_S = 10.0
"""How long a leaving learner waits for the acknowledgement of its last report."""


def run(part: Part) -> int:
    """Run the learner until it is told to stop; returns the exit status."""
    config = load_resolved(part.run_dir)
    if config.learner.kind == "torch":
        set_up_torch(config.learner.threads)
    return asyncio.run(_main(config, part))


async def _main(config: Config, part: Part) -> int:
    stacks.answer_tasks(part.stacks)
    return await serve_run(config, part.run_dir, part.name, part.endpoint)


async def serve_run(config: Config, run_dir: Path, name: str, endpoint: str) -> int:
    """Connect, serve, and say last words when something breaks; returns the exit status."""
    hello = Hello(name=name, incarnation=uuid.uuid4().hex[:12], pid=part_pid())
    peer = await Peer.connect(endpoint, hello, config.link)
    process = LearnerProcess(config, run_dir, peer)
    heartbeat = HeartbeatThread(peer.post, name, process.progress.snapshot).start()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, partial(process.leave, "SIGTERM", finish=False))
    try:
        await process.serve()
        return 0
    except Exception as fault:
        log.exception("the learner cannot go on")
        boundary_name = type(fault).__name__
        await peer.send(ProcessFailed(name=name, boundary=boundary_name, message=str(fault)))
        if isinstance(fault, WeightsError) and not process.is_loaded:
            # A damaged checkpoint is as damaged the next time.
            return EXIT_REFUSED
        return exit_status(fault)
    finally:
        process.progress.enter("stopping")
        await peer.flush(FLUSH_S if not process.is_cancelled else 1.0)
        heartbeat.stop()
        await peer.close()


class TrainsBatches(Protocol):
    """The part of `learner.Learner` that the process talks to; `ScriptedLearner` is one.

    Made by `make_learner`; everything is called in the work thread.
    """

    @property
    def version(self) -> PolicyVersion:
        """What is loaded now."""

    @property
    def room(self) -> Room:
        """What its writes go through: on a full disk they wait."""

    def start(self) -> WeightsPublished:
        """See `learner.Learner.start`."""

    def train(
        self, batch: TrainingBatch, wait_s: float, should_stop: Callable[[], bool]
    ) -> StepReport:
        """See `learner.Learner.train`."""

    def save(self) -> str:
        """See `learner.Learner.save`."""

    def close(self) -> None:
        """Let go of other processes, if there are any; nothing runs any more."""


def make_learner(config: Config, run_dir: Path, point: ResumePoint) -> TrainsBatches:
    """The learner of `learner.kind`, loaded.

    Raises:
        WeightsError: model or checkpoint is missing, damaged or of another step.
    """
    store = FileWeightStore(weights_folder(config, run_dir), config.weights.keep)
    store.sweep()
    if config.learner.kind == "scripted":
        return ScriptedLearner(config, run_dir, point, store)
    if config.learner.ranks > 1:
        from spade_async.learner.followers import LeadingLearner

        return LeadingLearner(config, run_dir, point, store)
    from spade_async.learner.learner import Learner

    return Learner(config, run_dir, point, store)


def free_device() -> None:
    """Give back what torch keeps of the device for its next use."""
    import torch

    torch.cuda.empty_cache()


def set_up_torch(threads: int) -> None:
    """Threads as configured, and no progress bars."""
    import torch
    from transformers.utils import logging as transformers_logging

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]


class LearnerProcess:
    """Connects a learner to the link."""

    def __init__(self, config: Config, run_dir: Path, peer: Peer):
        self._config = config
        self._run_dir = run_dir
        self._peer = peer
        self.progress = Progress()
        self._cancel = threading.Event()
        self.is_loaded = False
        """Model and checkpoint are in memory."""
        self._is_leaving = False
        # None wakes the loop up to look at `_is_leaving` and at the receiving task.
        self._batches: asyncio.Queue[Received | None] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="learn")
        self._turn = DeviceTurn(run_dir) if config.cluster.takes_turns else None
        """Of a device that generators use when the learner does not."""

    @property
    def is_cancelled(self) -> bool:
        """Whether we were told to leave at once."""
        return self._cancel.is_set()

    def leave(self, reason: str, *, finish: bool) -> None:
        """Leave after the running step (`finish`), or between two of its micro-batches."""
        log.info("leaving %s: %s", "after the running step" if finish else "at once", reason)
        self._is_leaving = True
        if not finish:
            self._cancel.set()
        self._batches.put_nowait(None)

    async def serve(self) -> None:
        """Load, publish, then train batch after batch until told to stop.

        Raises:
            SpadeError, ValueError: a fault of ours that ends the process.
        """
        receiving = asyncio.create_task(self._receive())
        learner: TrainsBatches | None = None
        try:
            learner = await self._in_thread(self._load)
            self.is_loaded = True
            if not self._is_leaving:
                start = partial(self._on_device, lambda _: learner.start())
                await self._peer.send(await self._in_thread(start))
                log.info("version %s is published; training can begin", learner.version)
            while not self._is_leaving:
                await self._next(learner, receiving)
        except (UpdateCancelled, WaitCancelled):
            log.info("the running step was cancelled; nothing of it was applied")
        finally:
            receiving.cancel()
            with contextlib.suppress(asyncio.CancelledError, SpadeError):
                await receiving
            self._thread.shutdown(wait=True, cancel_futures=True)
            if learner is not None:
                learner.close()

    async def _next(self, learner: TrainsBatches, receiving: asyncio.Task[None]) -> None:
        """Wait for one batch and train it, or save what is trained."""
        self.progress.enter("idle", "TrainingBatch")
        received = await self._batches.get()
        if received is None:
            if receiving.done():
                receiving.result()
            return
        batch = received.message
        if isinstance(batch, SaveCheckpoint):
            self.progress.enter("working", f"checkpoint {batch.branch}.{batch.step}")
            name = await self._in_thread(learner.save)
            saved = CheckpointSaved(branch=batch.branch, step=batch.step, checkpoint=name)
            await self._peer.send(saved)
            received.ack()
            return
        assert isinstance(batch, TrainingBatch)
        wait_s = self.progress.enter("working", f"step {batch.branch}.{batch.step}")

        def train(turn_s: float) -> StepReport:
            return learner.train(batch, wait_s + turn_s, self._tick)

        report = await self._in_thread(partial(self._on_device, train))
        await self._peer.send(report)
        received.ack()
        self.progress.num_steps += 1
        self.progress.num_tokens += int(batch.loss_mask.sum())

    async def _receive(self) -> None:
        """Sort what comes in; also while a step runs, so that `Stop` is heard at once."""
        try:
            while True:
                received = await self._peer.receive()
                message = received.message
                if isinstance(message, TrainingBatch | SaveCheckpoint):
                    self._batches.put_nowait(received)
                    continue
                received.ack()
                if isinstance(message, Stop):
                    self.leave(message.reason, finish=message.finish)
                else:
                    log.warning("ignored a %s: not for a learner", type(message).__name__)
        finally:
            self._batches.put_nowait(None)

    def _tick(self) -> bool:
        self.progress.tick()
        return self._cancel.is_set()

    def _on_device(self, work: Callable[[float], T]) -> T:
        """Do work in our turn on the device; it is told how long we waited for that, in seconds."""
        if self._turn is None:
            return work(0.0)
        with self._turn.as_learner(self._tick_or_leave) as turn_s:
            try:
                return work(turn_s)
            finally:
                if self._config.learner.device == "cuda":
                    free_device()

    def _tick_or_leave(self) -> None:
        if self._tick():
            raise UpdateCancelled

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _load(self) -> TrainsBatches:
        point = ResumePoint.of(self._peer.welcome.resume)
        learner = make_learner(self._config, self._run_dir, point)
        learner.room.listen(self._waits_for_room, self._cancel.is_set)
        return learner

    def _waits_for_room(self, what: str | None) -> None:
        """In the work thread: the run is not hung, it waits for the user."""
        if what is None:
            self.progress.enter("working", "room was found")
        else:
            self.progress.enter("disk_full", what)
