"""The thread of a `ProcessCore`: starts children, reads replies, judges deadlines, kills, collects.

Children are started here and nowhere else, because their death signal is tied to the thread that
started them. Nothing here blocks on untrusted code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import selectors
import threading
import time

from spade_async.jail_backends.answer import Answer, failed
from spade_async.jail_backends.book import Book
from spade_async.jail_backends.child import Child
from spade_async.jail_backends.frame import LOAD, STEP, Bad, FrameReader, TooLong, decode_reply
from spade_async.jail_backends.launcher import Launcher
from spade_async.jail_backends.worker import CLOSED, Worker
from spade_async.types import Outcome

log = logging.getLogger(__name__)

GRACE_S = 0.2
"""How long the end of a child may follow the end of its reply pipe."""
_ABSURD_BYTES = 1 << 28
"""An announced length of this and more is no long reply but no frame at all."""
_CHUNK = 64 << 10
_CLOSE_S = 10.0


class Loop:
    """State shared between the thread and whoever calls the core."""

    def __init__(self, launcher: Launcher, book: Book, hello: bytes) -> None:
        self.book = book
        self.lock = threading.Lock()
        self.done = threading.Condition(self.lock)
        self.done_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.is_stopping = False
        self.sleeps_until = 0.0
        """When the thread wakes by itself; guarded by the lock."""
        self._launcher, self._hello = launcher, hello
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._dying: set[Worker] = set()

    def ring(self) -> None:
        """Wake the thread."""
        os.eventfd_write(self._wake, 1)

    def tell(self) -> None:
        """Wake whoever waits for completions. With the lock held."""
        self.book.is_news = False
        os.eventfd_write(self.done_fd, 1)
        self.done.notify_all()

    def close_fds(self) -> None:
        """Give up the descriptors, after the thread has ended."""
        self._selector.close()
        os.close(self._wake)
        os.close(self.done_fd)

    def run(self) -> None:
        """Serve until told to stop; then end and collect every child."""
        try:
            while not self.is_stopping and self.book.broken is None:
                self._turn()
        except Exception:
            log.exception("sandbox loop")
            with self.lock:
                self.book.fail("sandbox pool: its thread failed; see the log")
        with self.lock:
            self.book.fail("sandbox pool was closed while the call was in flight")
            self.tell()
        until = time.monotonic() + _CLOSE_S
        self._kill()
        while self._dying and time.monotonic() < until:
            for worker in list(self._dying):
                worker.child.kill()
                self._collect(worker)
            time.sleep(0.002 if self._dying else 0)
        if self._dying:
            log.error("sandbox: %d children did not end within %g s", len(self._dying), _CLOSE_S)

    def _turn(self) -> None:
        with self.lock:
            now = time.monotonic()
            self.sleeps_until = self._next_look(now)
            timeout = max(0.0, self.sleeps_until - now)
        events = self._selector.select(timeout)
        with self.lock:
            for key, mask in events:
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._wake)
                elif key.data not in self._dying:
                    self._event(key.data, key.fd, mask)
            self._judge(time.monotonic())
            for worker in (*self.book.used, *self.book.starting):
                self._watch(worker)
            num_wanted = self.book.num_wanted(time.monotonic())
            if self.book.is_news:
                self.tell()
        # Outside the lock: a start takes milliseconds, a victim may take the CPU from us.
        self._kill()
        for worker in list(self._dying):
            self._collect(worker)
        for _ in range(num_wanted):
            self._start()

    def _next_look(self, now: float) -> float:
        book = self.book
        times = [now + 60.0]
        times += [worker.ready_by for worker in book.starting]
        for worker in (*book.used, *book.spares):
            if worker.closed_until is not None:
                times.append(worker.closed_until)
            if worker.call is not None:
                times.append(worker.call.next_check)
        if book.hold_until > now:
            times.append(book.hold_until)
        elif book.num_wanted(now):
            times.append(now)
        if self._dying:
            times.append(now + 0.25)  # a supervisor that does not end is ended
        return min(times)

    def _start(self) -> None:
        try:
            child = Child(self._launcher.command())
        except OSError as error:
            with self.lock:
                # A session may have been closed while we tried: its worker is still to be killed.
                if self._dying or self.book.to_kill:
                    self.book.pause()  # what they hold comes free
                else:
                    self.book.not_started(error.strerror or str(error))
                if self.book.is_news:
                    self.tell()
            return
        limits = self.book.limits
        ready_by = time.monotonic() + limits.start_s
        worker = Worker(child, FrameReader(limits.reply_cap), ready_by, b"")
        worker.unsent = child.write(self._hello)
        with self.lock:
            self.book.starting.add(worker)
            for fd in (child.replies, child.pidfd):
                self._selector.register(fd, selectors.EVENT_READ, worker)
                worker.watched.add(fd)
            self._watch(worker)

    def _watch(self, worker: Worker) -> None:
        """Watch for room in the request pipe while something is unsent."""
        fd = worker.child.requests
        if worker.unsent and fd not in worker.watched and not worker.is_ended:
            self._selector.register(fd, selectors.EVENT_WRITE, worker)
            worker.watched.add(fd)
        elif not worker.unsent and fd in worker.watched:
            self._unwatch(worker, fd)

    def _unwatch(self, worker: Worker, fd: int) -> None:
        if fd in worker.watched:
            self._selector.unregister(fd)
            worker.watched.discard(fd)

    def _event(self, worker: Worker, fd: int, mask: int) -> None:
        child = worker.child
        if worker.is_ended:
            return
        if fd == child.requests:
            worker.unsent = child.write(worker.unsent)
        elif fd == child.replies:
            self._readable(worker)
        elif child.collect():
            # What it wrote before it ended still counts: read it first.
            while not worker.is_ended and worker.closed_until is None and self._readable(worker):
                pass
            if worker.is_ended:
                return
            if worker.is_ready:
                self.book.end(worker, child.cause())
            else:
                self.book.not_started(self._explain(worker), worker)

    def _explain(self, worker: Worker) -> str:
        said = worker.child.said().decode("utf-8", "replace")
        if said.strip():
            return self._launcher.explain(said)
        return worker.child.cause().detail

    def _readable(self, worker: Worker) -> bool:
        """Read once; whether something came."""
        chunk = worker.child.read(_CHUNK)
        if chunk is None:
            return False
        if not chunk:
            worker.closed_until = time.monotonic() + GRACE_S
            self._unwatch(worker, worker.child.replies)  # a closed pipe would ring for ever
            return False
        if worker.is_ready:
            self._received(worker, chunk)
        else:
            self._hello_received(worker, chunk)
        return True

    def _hello_received(self, worker: Worker, chunk: bytes) -> None:
        """The first frame, of trusted code: the child is ready or says why it is not."""
        try:
            frame, _ = worker.reader.push(chunk)
            if frame is None:
                return
            answer = decode_reply(frame, 0)
            if answer.outcome == Outcome.FINISHED:
                worker.child.adopt()
                self.book.ready(worker)
                return
            detail = answer.detail
        except (Bad, OSError) as error:
            detail = f"{type(error).__name__}: {error}"
        self.book.not_started(detail, worker)

    def _received(self, worker: Worker, chunk: bytes) -> None:
        if worker.call is None:
            self.book.end(worker, failed(Outcome.PROTOCOL_VIOLATION, "bytes without a call"))
            return
        try:
            frame, rest = worker.reader.push(chunk)
            if frame is None:
                return
            answer = decode_reply(frame, worker.sequence)
        except TooLong as long:
            if long.length < _ABSURD_BYTES:
                limit = self.book.limits.reply_bytes
                detail = f"reply of {long.length} bytes, limit {limit}"
                self.book.end(worker, failed(Outcome.OVER_OUTPUT, detail))
            else:
                self.book.end(worker, failed(Outcome.PROTOCOL_VIOLATION, str(long)))
            return
        except Bad as bad:
            self.book.end(worker, failed(Outcome.PROTOCOL_VIOLATION, str(bad)))
            return
        self._answered(worker, answer, bool(rest))

    def _answered(self, worker: Worker, answer: Answer, is_more: bool) -> None:
        call = worker.call
        assert call is not None
        if worker.unsent:
            answer = failed(Outcome.PROTOCOL_VIOLATION, "a reply before the request was read")
        elif answer.outcome == Outcome.FINISHED and (call.kind == STEP) != (
            answer.reward is not None
        ):
            answer = failed(Outcome.PROTOCOL_VIOLATION, "a reply that does not fit the call")
        answer = dataclasses.replace(
            answer, wall_s=time.monotonic() - call.begun, cpu_s=worker.cpu_s()
        )
        is_fatal = (call.kind == LOAD and answer.outcome != Outcome.FINISHED) or (
            answer.outcome in (Outcome.OVER_MEMORY, Outcome.PROTOCOL_VIOLATION)
        )
        worker.call = None
        worker.num_calls += 1
        worker.wall_s += answer.wall_s
        worker.bytes_out += answer.reply_bytes
        self.book.finish(call.operation, answer)
        if is_more:
            self.book.end(worker, failed(Outcome.PROTOCOL_VIOLATION, "bytes after the reply"))
        elif is_fatal:
            self.book.end(worker, answer)

    def _judge(self, now: float) -> None:
        """Judge every deadline that has passed."""
        book = self.book
        for worker in [worker for worker in book.starting if worker.ready_by <= now]:
            book.not_started(f"it was not ready within {book.limits.start_s:g} s", worker)
        for worker in [*book.used, *book.spares]:
            if worker.closed_until is not None and worker.closed_until <= now:
                book.end(worker, failed(Outcome.PROTOCOL_VIOLATION, CLOSED))
            elif worker.call is not None and worker.call.next_check <= now:
                answer = worker.late(now, book.num_cpus)
                if answer is not None:
                    book.end(worker, answer)

    def _kill(self) -> None:
        with self.lock:
            victims, self.book.to_kill = self.book.to_kill, []
        for worker in victims:
            worker.child.kill()
            for fd in (worker.child.replies, worker.child.requests):
                self._unwatch(worker, fd)
            self._dying.add(worker)

    def _collect(self, worker: Worker) -> None:
        """Collect a killed child if it is over; insist after a while."""
        if not worker.child.collect():
            worker.child.kill()
            return
        for fd in list(worker.watched):
            self._unwatch(worker, fd)
        worker.child.close()
        self._dying.discard(worker)
