"""What a `ProcessCore` knows, behind one lock: workers, sessions, calls, completions.

Only bookkeeping: it asks for starts and kills (`num_wanted`, `to_kill`), the loop carries them out.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque

from spade_async.errors import SandboxBusy, SandboxError
from spade_async.jail_backends.answer import Answer
from spade_async.jail_backends.counters import Counters
from spade_async.jail_backends.frame import LOAD, encode_request
from spade_async.jail_backends.limits import Limits
from spade_async.jail_backends.worker import Worker

PAUSE_S = 0.05
"""Pause after a child could not be started: what is short may come free."""
MOST_LOST = 64
"""Children that may die one after another before they are used."""


class Book:
    """The state. Every method is called with the pool's lock held."""

    def __init__(self, limits: Limits, num_cpus: int, num_at_once: int) -> None:
        self.limits = limits
        self.num_cpus = num_cpus
        self.num_at_once = num_at_once
        """Children that start at the same time."""
        self.starting: set[Worker] = set()
        self.spares: deque[Worker] = deque()
        self.used: set[Worker] = set()
        self.to_kill: list[Worker] = []
        self.finished: dict[int, Answer | str] = {}
        """Answers, and texts of faults, by operation."""
        self.is_news = False
        self.hold_until = 0.0
        self.broken: str | None = None
        self.counters = Counters()
        self._sessions: dict[int, Worker | Answer | str | None] = {}
        """A worker, its last answer when it is gone, a fault of ours, or None while waiting."""
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._last_operation = 0
        self._num_lost_in_a_row = 0

    def pairs(self) -> list[tuple[str, int]]:
        """Counters and gauges."""
        gauges = [("live", len(self.used)), ("spare", len(self.spares)),
                  ("waiting", len(self._waiting))]  # fmt: skip
        return self.counters.pairs() + gauges

    def num_wanted(self, now: float) -> int:
        """Children to start now."""
        if self.broken is not None or now < self.hold_until:
            return 0
        room = self.limits.num_workers - len(self.used)
        target = max(1, self.limits.spares) + min(len(self._waiting), max(0, room))
        missing = target - len(self.spares) - len(self.starting)
        return max(0, min(missing, self.num_at_once - len(self.starting)))

    def open(self, body: bytes) -> int:
        """A new session that waits for a worker. Its number is that of the load."""
        can_start = (
            not self._waiting and len(self.used) < self.limits.num_workers and bool(self.spares)
        )
        if len(self._waiting) >= self.limits.queue and not can_start:
            self.counters.busy += 1
            detail = f"{len(self._waiting)} sessions wait"
            self.counters.event("busy", self.limits.profile, None, detail)
            raise SandboxBusy(
                f"sandbox queue is full: {len(self._waiting)} sessions already wait; raise "
                "sandbox.queue or open fewer at once"
            )
        operation = self._operation()
        self._sessions[operation] = None
        self._waiting.append((operation, body))
        self.assign()
        return operation

    def call(self, session: int, kind: int, body: bytes) -> int:
        """A call of an open session."""
        worker = self._sessions.get(session)
        if isinstance(worker, Answer | str):
            operation = self._operation()
            self.finish(operation, worker)
            return operation
        if worker is None:
            raise SandboxError("sandbox session: it is not open; enter it first")
        if worker.call is not None:
            raise SandboxError("sandbox session: a call is in flight; await it before the next")
        operation = self._operation()
        self._send(worker, operation, kind, body)
        return operation

    def release(self, session: int) -> None:
        """End a session; its worker is killed by the loop."""
        worker = self._sessions.pop(session, None)
        if isinstance(worker, Worker):
            if worker.call is not None:
                self.finish(worker.call.operation, "the session was closed during the call")
            self._retire(worker)
        elif worker is None:
            self._waiting = deque(pair for pair in self._waiting if pair[0] != session)
        self.assign()

    def cancel(self, session: int) -> None:
        """End a session's worker; a call in flight and all later ones are a fault."""
        worker = self._sessions.get(session)
        detail = "the session was cancelled; open a new one"
        if isinstance(worker, Worker):
            if worker.call is not None:
                self.finish(worker.call.operation, detail)
            self._sessions[session] = detail
            self._retire(worker)
        elif worker is None and session in self._sessions:
            self._waiting = deque(pair for pair in self._waiting if pair[0] != session)
            self._sessions[session] = detail
            self.finish(session, detail)
        self.assign()

    def worker_of(self, session: int) -> Worker | None:
        """The worker that serves a session now."""
        worker = self._sessions.get(session)
        return worker if isinstance(worker, Worker) else None

    def assign(self) -> None:
        """Give spares to those who wait, oldest first."""
        while self._waiting and self.spares and len(self.used) < self.limits.num_workers:
            worker = self.spares.popleft()
            session, body = self._waiting.popleft()
            worker.session = session
            self._sessions[session] = worker
            self.used.add(worker)
            self.counters.acquired += 1
            worker.cpu_at_start_ns = worker.child.cpu_ns()
            self._send(worker, session, LOAD, body)

    def ready(self, worker: Worker) -> None:
        """A worker has started and is limited."""
        self.starting.discard(worker)
        worker.is_ready = True
        self._num_lost_in_a_row = 0
        self.counters.started += 1
        self.spares.append(worker)
        self.assign()

    def pause(self) -> None:
        """Start nothing for a moment."""
        self.hold_until = time.monotonic() + PAUSE_S

    def not_started(self, detail: str, worker: Worker | None = None) -> None:
        """A worker could not be made: the oldest waiter is told, the others go on waiting."""
        if worker is not None:
            self._retire(worker)
        self.pause()
        if worker is not None:  # else the system had no room, which may pass
            self._num_lost_in_a_row += 1
        self.counters.event("start_failed", self.limits.profile, None, detail)
        if self._waiting:
            operation, _ = self._waiting.popleft()
            del self._sessions[operation]
            self.finish(operation, f"no worker could be started: {detail}")
        if self._num_lost_in_a_row > MOST_LOST:
            self.fail(f"sandbox pool: workers die before they are used: {detail}")

    def end(self, worker: Worker, answer: Answer) -> None:
        """The worker is done for: answer its call and all later ones of its session."""
        if worker.is_ended:
            return
        if worker.call is not None:
            answer = dataclasses.replace(
                answer,
                wall_s=time.monotonic() - worker.call.begun,
                cpu_s=answer.cpu_s if answer.cpu_s is not None else worker.cpu_s(),
            )
            self.finish(worker.call.operation, answer)
            worker.call = None
        if worker.session is not None:
            self._sessions[worker.session] = answer
            self.counters.event(answer.outcome, self.limits.profile, worker.session, answer.detail)
        else:
            self.counters.lost_spares += 1
            self._num_lost_in_a_row += 1
            if self._num_lost_in_a_row > MOST_LOST:
                self.fail(f"sandbox pool: workers die before they are used: {answer.detail}")
        self._retire(worker)
        self.assign()

    def finish(self, operation: int, done: Answer | str) -> None:
        """An operation has its answer, or the text of a fault of ours."""
        if isinstance(done, Answer):
            self.counters.answered(done.outcome, done.wall_s)
        self.finished[operation] = done
        self.is_news = True

    def fail(self, detail: str) -> None:
        """Nothing more can be served: end every call with a fault."""
        if self.broken is None:
            self.broken = detail
            self.counters.event("broken", self.limits.profile, None, detail)
        for worker in [*self.used, *self.spares, *self.starting]:
            if worker.call is not None:
                self.finish(worker.call.operation, detail)
                worker.call = None
            self._retire(worker)
        while self._waiting:
            self.finish(self._waiting.popleft()[0], detail)

    def _operation(self) -> int:
        self._last_operation += 1
        return self._last_operation

    def _send(self, worker: Worker, operation: int, kind: int, body: bytes) -> None:
        worker.sequence += 1
        worker.begin(operation, kind, self.limits, self.num_cpus)
        frame = encode_request(worker.sequence, kind, body)
        worker.bytes_in += len(frame)
        worker.unsent = worker.child.write(frame)

    def _retire(self, worker: Worker) -> None:
        """Take a worker out of the book; the loop kills and collects it."""
        if worker.is_ended:
            return
        worker.is_ended, worker.call = True, None
        self.starting.discard(worker)
        self.used.discard(worker)
        if worker in self.spares:
            self.spares.remove(worker)
        self.counters.killed += 1
        self.to_kill.append(worker)
