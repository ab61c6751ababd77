"""`ProcessCore`: what the facades ask of the native core, answered with plain child processes."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

from spade_async.errors import SandboxError
from spade_async.jail_backends.answer import Answer, Row
from spade_async.jail_backends.book import Book
from spade_async.jail_backends.counters import Counters, EventRow
from spade_async.jail_backends.frame import RESET, STEP, load_body
from spade_async.jail_backends.launcher import Launcher
from spade_async.jail_backends.layers import Layers
from spade_async.jail_backends.limits import Limits
from spade_async.jail_backends.loop import Loop
from spade_async.jail_backends.survey import Survey


class ProcessCore:
    """One process per episode. Every method may be called from any thread of its process."""

    def __init__(
        self, limits: Limits, survey: Survey, launcher: Launcher, required: tuple[str, ...] = ()
    ) -> None:
        """Start the thread and a first child, and try the layers in it.

        Args:
            limits: limits of the pool.
            survey: what the interpreter needs.
            launcher: how children are started.
            required: layers without which this backend refuses at every level.

        Raises:
            SandboxError: no child can be started, or a layer that must hold is missing.
        """
        self._owner = os.getpid()
        self._launcher = launcher
        num_at_once = max(2, os.cpu_count() or 1)
        self._loop = Loop(launcher, Book(limits, launcher.num_cpus, num_at_once), survey.hello)
        self._thread: threading.Thread | None = threading.Thread(
            target=self._loop.run, name=f"sandbox-{launcher.name}", daemon=True
        )
        self._thread.start()
        try:
            self._layers = self._probe()
            self._layers.demand(
                list(required)
                if limits.level == "auto" or (required and limits.level != "strict")
                else self._layers.missing
            )
        except BaseException:
            self.close()
            raise

    def _probe(self) -> Layers:
        """Run a trusted environment that tries what must be refused."""
        session = self.open(self._launcher.probe, "0")
        self._expect(session, "no child can be started")
        with self._loop.lock:
            child = next(iter(self._loop.book.used)).child
        text = self._expect(self.call(session, RESET, "0"), "the first child failed")
        layers = self._launcher.layers(child, json.loads(text))
        self.release(session)
        with self._loop.lock:
            self._loop.book.counters = Counters()
        return layers

    def _expect(self, operation: int, what: str) -> str:
        done = self.wait(operation)
        if isinstance(done, str):
            raise SandboxError(f"sandbox backend {self._launcher.name}: {done}")
        if done[0] != "finished":
            raise SandboxError(
                f"sandbox backend {self._launcher.name}: {what}: {done[0]}: {done[5]}"
            )
        return done[1]

    def _check_process(self) -> None:
        caller = os.getpid()
        if caller != self._owner:
            # Before the lock, which may have been held when the owner forked.
            raise SandboxError(
                f"sandbox pool of process {self._owner} used from process {caller}: a forked child "
                "must start its own pool"
            )

    @contextlib.contextmanager
    def _book(self) -> Any:
        """The book under the lock; wakes whoever must act on what was written into it."""
        self._check_process()
        with self._loop.lock:
            book = self._loop.book
            if self._loop.is_stopping or self._thread is None:
                raise SandboxError("sandbox pool is closed; start a new one")
            if book.broken is not None:
                raise SandboxError(book.broken)
            yield book
            is_work = bool(book.to_kill) or any(worker.unsent for worker in book.used)
            soonest = min(
                (worker.call.next_check for worker in book.used if worker.call is not None),
                default=None,
            )
            if book.is_news:
                self._loop.tell()
            if is_work or book.num_wanted(0.0) or (soonest or 1e300) < self._loop.sleeps_until:
                self._loop.ring()

    def open(self, source: str, seed_hex: str, profile: int = 0, forkable: bool = False) -> int:
        """Ask for a child and load a source; the number names the session and the operation.

        Raises:
            SandboxBusy: the queue is full.
            SandboxError: the pool is closed, or asked for what only the native core gives.
        """
        if forkable:
            self._needs_native("a forkable session")
        if profile != 0:
            self._needs_native("a second profile in one pool")
        with self._book() as book:
            operation: int = book.open(load_body(source, seed_hex))
        return operation

    def open_now(
        self, source: str, seed_hex: str, profile: int = 0, forkable: bool = False
    ) -> tuple[int, Row | str]:
        """`open`, and wait. A signal's exception gives the session up."""
        session = self.open(source, seed_hex, profile, forkable)
        try:
            return session, self.wait(session)
        except BaseException:
            self.release(session)
            raise

    def call_now(self, session: int, kind: int, body: str) -> Row | str:
        """`call`, and wait. A signal's exception ends the child."""
        operation = self.call(session, kind, body)
        try:
            return self.wait(operation)
        except BaseException:
            self.cancel(session)
            raise

    def step_many(self, steps: Sequence[tuple[int, str]]) -> list[Row | str]:
        """Steps on many sessions, all sent before the first answer is awaited."""
        flights: list[int | str] = []
        for session, text in steps:
            try:
                flights.append(self.call(session, STEP, text))
            except SandboxError as fault:
                flights.append(str(fault))
        return [flight if isinstance(flight, str) else self.wait(flight) for flight in flights]

    def call(self, session: int, kind: int, body: str) -> int:
        """Call a session: kind 1 reset (seed in hexadecimal), 2 step (action), 3 hint."""
        with self._book() as book:
            operation: int = book.call(session, kind, body.encode())
        return operation

    def release(self, session: int) -> None:
        """End a session without waiting."""
        self._check_process()
        with contextlib.suppress(SandboxError), self._book() as book:
            book.release(session)

    def cancel(self, session: int) -> None:
        """End a session's child now; a call in flight is a fault."""
        with contextlib.suppress(SandboxError), self._book() as book:
            book.cancel(session)

    def used(self, session: int) -> dict[str, int | float | None] | None:
        """What a session has used; None when it has no child."""
        with self._book() as book:
            worker = book.worker_of(session)
            return None if worker is None else worker.account()

    def wait(self, operation: int) -> Row | str:
        """Wait for one operation: its row, or the text of a fault."""
        self._check_process()
        with self._loop.lock:
            while operation not in self._loop.book.finished:
                if self._thread is None:
                    raise SandboxError("sandbox pool is closed; start a new one")
                self._loop.done.wait(1.0)
            return _row(self._loop.book.finished.pop(operation))

    def drain(self) -> list[tuple[int, Row | str]]:
        """All completions since the last drain, by operation."""
        self._check_process()
        with self._loop.lock:
            if self._thread is not None:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._loop.done_fd)
            finished, self._loop.book.finished = self._loop.book.finished, {}
        return [(operation, _row(done)) for operation, done in finished.items()]

    def done_fd(self) -> int:
        """Descriptor that becomes readable when `drain` has something."""
        return self._loop.done_fd

    def capabilities(self) -> dict[str, Any]:
        """Level and layers, found out at the start by doing."""
        return self._layers.report()

    def stats(self) -> list[tuple[str, int]]:
        """Counters and gauges by name."""
        self._check_process()
        with self._loop.lock:
            return self._loop.book.pairs()

    def drain_latencies(self) -> list[float]:
        """Wall seconds per call since the last drain."""
        self._check_process()
        with self._loop.lock:
            counters = self._loop.book.counters
            taken, counters.latencies = counters.latencies, []
        return taken

    def drain_events(self) -> list[EventRow]:
        """Events since the last drain; the newest 4,096 are kept."""
        self._check_process()
        with self._loop.lock:
            events = self._loop.book.counters.events
            taken = list(events)
            events.clear()
        return taken

    def fork(self, session: int, seed_hex: str) -> NoReturn:
        """Not here: a plain process cannot be copied with its state."""
        self._needs_native("session.fork()")

    fork_now = fork

    def _needs_native(self, what: str) -> NoReturn:
        raise SandboxError(
            f'{what} needs backend "native"; this pool runs backend {self._launcher.name!r}'
        )

    def close(self) -> None:
        """End everything; returns when no process is left. Idempotent."""
        if os.getpid() != self._owner:
            return
        with self._loop.lock:
            thread, self._loop.is_stopping = self._thread, True
        if thread is None:
            return
        self._loop.ring()
        thread.join()
        with self._loop.lock:
            self._thread = None
            self._loop.done.notify_all()
        self._loop.close_fds()
        self._launcher.close()

    def __del__(self) -> None:
        if getattr(self, "_thread", None) is not None:
            self.close()


def _row(done: Answer | str) -> Row | str:
    return done if isinstance(done, str) else done.row
