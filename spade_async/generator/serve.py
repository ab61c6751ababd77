"""The loop of a generator: tasks by credit, weights swapped under them, a clean end.

Everything runs on one event loop; the engine computes in a thread of its own, the jail in processes
of its own, heartbeats come from a third thread. Nothing here decides what is played or trained.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from spade_async.config.correction import RULES
from spade_async.engine.attested import AttestedEngine, NotAttested
from spade_async.environment.text import one_line
from spade_async.errors import ProcessFailure, SpadeError, WeightsError
from spade_async.generator import health
from spade_async.generator.context import GeneratorContext
from spade_async.generator.design_task import run_design
from spade_async.generator.heartbeat import Vitals
from spade_async.generator.jail_figures import JailFigures
from spade_async.generator.outbox import Outbox
from spade_async.generator.play_task import run_play
from spade_async.generator.turns import Turns
from spade_async.transport.heartbeat import HeartbeatThread
from spade_async.transport.link import Peer
from spade_async.transport.messages import (
    CancelTask,
    Credit,
    DesignTask,
    Message,
    PlayTask,
    ProcessFailed,
    Stop,
    TaskCut,
    WeightsLoaded,
    WeightsPublished,
)
from spade_async.types import PolicyVersion
from spade_async.weights.attestation import Attestation

log = logging.getLogger(__name__)

_LOAD_TRIES = 3
_LOAD_PAUSE_S = 0.5
_MOST_CUT = 1024
_CUT_S = 10.0
"""A cancelled task ends within the time of a kill; what does not is said."""


class Generator:
    """Serves one coordinator. `serve` returns the exit code."""

    def __init__(
        self,
        name: str,
        context: GeneratorContext,
        jail: JailFigures,
        peer: Peer,
        leave: asyncio.Event,
        turns: Turns | None = None,
    ) -> None:
        self._name = name
        engine = context.player.engine
        if not isinstance(engine, AttestedEngine):
            rule = RULES[context.config.learner.correction.rule]
            engine = AttestedEngine(engine, needs_logprobs=rule.uses_generator)
        self._engine = engine
        # Every request goes through the guard.
        self._context = replace(context, player=replace(context.player, engine=self._engine))
        self._set_aside = False
        """Whether our credit is withdrawn until weights are proven."""
        self._jail = jail
        self._peer = peer
        self._leave = leave
        self._turns = turns
        self._finished = asyncio.Event()
        self._finishing = False
        self._vitals = Vitals()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cutting: set[asyncio.Task[None]] = set()
        self._cut: dict[str, None] = {}
        """Newest task ids that were cut: one that comes after its cancellation is not begun."""
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outbox = Outbox(peer.send, self._fail)
        self._newest: WeightsPublished | None = None
        self._published = asyncio.Event()
        self._checking: asyncio.Task[None] | None = None

    async def serve(self) -> int:
        """Work until Stop, SIGTERM (exit code 0) or a fault of ours (1, after `ProcessFailed`)."""
        heartbeat = HeartbeatThread(self._peer.post, self._name, self._vitals.snapshot).start()
        try:
            await self._until_stopped()
            code = 0
        except Exception as fault:
            log.exception("%s fails", self._name)
            what = type(fault).__name__ if isinstance(fault, SpadeError) else "generator"
            message = one_line(f"{type(fault).__name__}: {fault}", 600)
            failed = ProcessFailed(name=self._name, boundary=what, message=message)
            await self._peer.send(failed)
            code = 1
        self._vitals.state = "stopping"
        # A fault or SIGTERM leaves promptly; what was not acknowledged is asked for again.
        if not await self._peer.flush(30.0 if self._finishing and code == 0 else 2.0):
            log.warning("%d results were not acknowledged", self._peer.num_unacknowledged)
        heartbeat.stop()
        log.info("%s leaves with code %d", self._name, code)
        return code

    async def _until_stopped(self) -> None:
        resume = self._peer.welcome.resume
        self._newest = WeightsPublished(
            version=int(resume["version"]),
            location=str(resume["location"]),
            digest=str(resume["digest"]),
            attestation=resume.get("attestation", {}),
        )
        self._published.set()
        parts: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(part)
            for part in (self._receive(), self._load_weights(), self._observe())
        ]
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(event.wait()) for event in (self._leave, self._finished)
        ]
        faults = [self._failed] if self._turns is None else [self._failed, self._turns.failed]
        try:
            done, _ = await asyncio.wait(
                [*parts, *waits, *faults], return_when=asyncio.FIRST_COMPLETED
            )
            for future in done:
                future.result()
        finally:
            running = [
                *parts,
                *waits,
                *self._tasks,
                *self._cutting,
                *([self._checking] if self._checking else []),
            ]
            for future in running:
                future.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _receive(self) -> None:
        while True:
            received = await self._peer.receive()
            await self._handle(received.message)
            received.ack()

    async def _handle(self, message: Message) -> None:
        match message:
            case DesignTask():
                self._start(message.task_id, self._design(message))
            case PlayTask():
                self._start(message.task_id, self._play(message))
            case CancelTask():
                cutting = asyncio.create_task(self._cancel(message.task_id))
                self._cutting.add(cutting)
                cutting.add_done_callback(self._cutting.discard)
            case WeightsPublished():
                self._newest = message
                self._published.set()
            case Stop(finish=False):
                log.info("stop at once: %s", message.reason)
                self._leave.set()
            case Stop():
                log.info("finish %d tasks, then stop: %s", len(self._tasks), message.reason)
                self._finishing = True
                await self._context.gate.close()
                self._check_finished()
            case _:
                log.error("the coordinator sent %s, which it never should", type(message).__name__)

    async def _cancel(self, task_id: str) -> None:
        """End a task, its requests and its jailed workers; then say so."""
        self._cut[task_id] = None
        if len(self._cut) > _MOST_CUT:
            del self._cut[next(iter(self._cut))]
        for task in [t for t in self._tasks if t.get_name() == task_id]:
            log.info("%s is cut", task_id)
            task.cancel()
            await asyncio.wait([task], timeout=_CUT_S)
            if not task.done():
                log.warning("%s does not end; its slot is given up", task_id)
        tokens = self._context.counters.cut_tokens.pop(task_id, 0)
        await self._peer.send(TaskCut(task_id=task_id, tokens=tokens))

    def _start(self, task_id: str, work: Coroutine[Any, Any, None]) -> None:
        if task_id in self._cut:
            work.close()
            return
        counters = self._context.counters
        counters.tasks_started += 1
        counters.running[task_id] = time.monotonic()
        task = asyncio.create_task(work, name=task_id)
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            counters.running.pop(task_id, None)
            counters.tasks_done += 1
            fault = None if task.cancelled() else task.exception()
            if fault is not None:
                self._fail(fault)
            self._check_finished()

        task.add_done_callback(ended)

    def _fail(self, fault: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(fault)

    def _check_finished(self) -> None:
        if self._finishing and not self._tasks:
            self._finished.set()

    async def _design(self, task: DesignTask) -> None:
        result = await run_design(self._context, task)
        await self._outbox.put(result)
        await self._outbox.flush()
        if result.missing_reason is not None:
            self._suspect()

    async def _play(self, task: PlayTask) -> None:
        try:
            num_missing = await run_play(self._context, task, self._outbox.put)
        finally:
            # Also of a task that is cut: what it finished goes before the word that it ended.
            await self._outbox.flush()
        if num_missing:
            self._suspect()

    def _suspect(self) -> None:
        """A sample is missing by our own fault: find out whether engine or jail are dead."""
        if self._checking is not None and not self._checking.done():
            return

        def ended(task: asyncio.Task[None]) -> None:
            fault = None if task.cancelled() else task.exception()
            if fault is not None:
                self._fail(fault)

        self._checking = asyncio.create_task(self._check_health())
        self._checking.add_done_callback(ended)

    async def _check_health(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            if self._turns is not None:
                # An engine that sleeps would look dead.
                await stack.enter_async_context(self._turns.staying_awake)
            await health.check(self._context.player)

    async def _load_weights(self) -> None:
        gate, vitals = self._context.gate, self._vitals
        is_first = True
        while True:
            await self._published.wait()
            self._published.clear()
            message = self._newest
            if message is None or message.version <= gate.loaded:
                continue
            vitals.state = vitals.state if is_first else "loading_weights"
            vitals.waits_for = f"weights {PolicyVersion.unpack(message.version)}"
            loaded = await self._load(message)
            vitals.state = "working"
            if loaded is None:
                continue
            await gate.open(message.version)
            await self._peer.send(loaded)
            if is_first or self._set_aside:
                is_first = self._set_aside = False
                credit = self._context.config.generator.concurrent_tasks
                await self._peer.send(Credit(tasks=credit))

    async def _load(self, message: WeightsPublished) -> WeightsLoaded | None:
        """Load one weight set; None when a newer one was published meanwhile.

        Raises:
            ProcessFailure: it cannot be loaded and there is no newer one.
        """
        version = PolicyVersion.unpack(message.version)
        for attempt in range(_LOAD_TRIES):
            try:
                done = await self._engine.load_attested(
                    version,
                    message.location,
                    message.digest,
                    Attestation.of(message.attestation),
                )
            except WeightsError as fault:
                if isinstance(fault, NotAttested):
                    await self._set_self_aside(message, fault)
                if self._published.is_set():
                    log.info("weights %s are gone; newer ones are announced", version)
                    return None
                if attempt == _LOAD_TRIES - 1:
                    raise ProcessFailure(
                        f"weights {version} cannot be loaded: {fault}; resume the run"
                    ) from fault
                log.warning("weights %s: %s; trying again", version, fault)
                await asyncio.sleep(_LOAD_PAUSE_S)
            else:
                return WeightsLoaded(
                    version=done.report.version.packed,
                    digest=done.report.digest,
                    load_s=done.report.load_s,
                    pause_s=done.report.pause_s,
                    probe_gap=done.probe_gap,
                    attest_s=done.attest_s,
                )
        return None

    async def _set_self_aside(self, message: WeightsPublished, fault: NotAttested) -> None:
        """The weights that are in are wrong: say so, and take no work until others are."""
        log.error("%s", fault)
        await self._peer.send(
            WeightsLoaded(
                version=message.version,
                digest=message.digest,
                load_s=0.0,
                pause_s=0.0,
                attested=False,
                reason=fault.reason,
            )
        )
        self._set_aside = True
        await self._peer.send(Credit(tasks=0))

    async def _observe(self) -> None:
        while True:
            is_asleep = self._turns is not None and self._turns.is_asleep
            self._vitals.take(self._context, self._jail, is_asleep=is_asleep)
            await asyncio.sleep(1.0)
