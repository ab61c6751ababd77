"""One operating-system process that serves one episode, seen from the host.

Two pipes carry the frames; a third may carry what a supervisor (nsjail) logs. The host judges the
process by its CPU clock and ends it by signal; nothing here blocks.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spade_async.jail_backends.answer import Answer, failed
from spade_async.types import Outcome

LOG_BYTES = 64 << 10
_PATIENCE_S = 1.0
"""How long a supervisor may take to end by itself after its child was killed."""
_ENDED = re.compile(
    rb"pid=\d+ \(.*?\) (?:exited with status: (\d+)|terminated with signal: \S+ \((\d+)\))"
)


@dataclass(frozen=True, slots=True)
class Command:
    """How to start one child."""

    argv: Sequence[str]
    env: Mapping[str, str]
    supervised: bool = False
    """The started process is a supervisor; its only child is the interpreter."""
    pass_fds: tuple[int, ...] = ()


class Child:
    """A started process and its pipes."""

    requests: int
    """Descriptor that requests are written to."""
    replies: int
    """Descriptor that replies are read from."""
    pidfd: int
    """Becomes readable when the started process has ended."""

    def __init__(self, command: Command) -> None:
        """Start it. Raises OSError when the system has no room for it."""
        self.command = command
        self._killed_at: float | None = None
        self._inner: int | None = None
        self._inner_fd: int | None = None
        self._said = b""
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as done:
            their_requests, self.requests = os.pipe()
            done.callback(os.close, their_requests)
            undo.callback(os.close, self.requests)
            self.replies, their_replies = os.pipe()
            undo.callback(os.close, self.replies)
            done.callback(os.close, their_replies)
            self._log, their_log = os.pipe()
            undo.callback(os.close, self._log)
            done.callback(os.close, their_log)
            self._process = subprocess.Popen(
                command.argv, env=command.env, cwd="/", stdin=their_requests,
                stdout=their_replies, stderr=their_log, pass_fds=command.pass_fds,
                start_new_session=True,
            )  # fmt: skip
            undo.callback(self._process.wait)
            undo.callback(self._process.kill)
            self.pidfd = os.pidfd_open(self._process.pid)
            undo.callback(os.close, self.pidfd)
            for fd in (self.requests, self.replies, self._log):
                os.set_blocking(fd, False)
            undo.pop_all()

    @property
    def pid(self) -> int:
        """Process id of the interpreter, or of its supervisor before `adopt`."""
        return self._inner if self._inner is not None else self._process.pid

    def adopt(self) -> None:
        """The child is ready and still trusted: find the interpreter behind its supervisor.

        Raises:
            OSError: it cannot be found.
        """
        if self.command.supervised:
            self._inner = _only_child(self._process.pid)
            self._inner_fd = os.pidfd_open(self._inner)
            if _parent(self._inner) != self._process.pid:
                raise ProcessLookupError(f"process {self._inner} is not the supervisor's child")

    def cpu_ns(self) -> int | None:
        """CPU nanoseconds of the interpreter so far; None once it is gone."""
        if self.command.supervised and self._inner is None:
            return None
        try:
            # The clock id of another process, as clock_getcpuclockid makes it.
            return time.clock_gettime_ns((~self.pid << 3) | 2)
        except OSError:
            return None

    def has_closed(self) -> bool:
        """Whether the interpreter has closed its reply pipe while a supervisor holds it open."""
        if not self.command.supervised or self._inner is None:
            return False  # the end of the pipe is seen by itself
        try:
            os.readlink(f"/proc/{self._inner}/fd/1")
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return False

    def write(self, data: bytes) -> bytes:
        """Write what the pipe takes now and give back the rest."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.requests, view) :]
        except BlockingIOError:
            return bytes(view)
        except OSError:
            return b""  # it is dead or has closed its end; the reply pipe tells
        return b""

    def read(self, count: int) -> bytes | None:
        """Up to `count` bytes, b"" at the end of the pipe, None when nothing has come."""
        try:
            return os.read(self.replies, count)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def kill(self) -> None:
        """Send the signal that ends it; the end itself is seen by `pidfd`. May be repeated."""
        if self._process.returncode is not None:
            return
        now = time.monotonic()
        first = self._killed_at is None
        if first:
            self._killed_at = now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not self.command.supervised:
                os.killpg(self._process.pid, signal.SIGKILL)
            elif first and self._inner_fd is not None:
                signal.pidfd_send_signal(self._inner_fd, signal.SIGKILL)
            elif first:
                self._process.send_signal(signal.SIGTERM)  # the supervisor ends its child
            elif now - (self._killed_at or now) > _PATIENCE_S:
                self._process.kill()  # its death signal ends the child

    def collect(self) -> bool:
        """Whether the started process has ended; collects it, and ends what it left behind."""
        if self._process.returncode is None:
            if os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return False
            if not self.command.supervised:
                # While it is not collected its number names its group and nobody else's.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        return True

    def cause(self) -> Answer:
        """Why it ended, once it is over."""
        code, said = self._process.returncode, self.said()
        if self.command.supervised:
            ends = _ENDED.findall(said)
            if ends:
                status, number = ends[-1]
                code = -int(number) if number else int(status)
        if code == -signal.SIGSYS:
            return failed(Outcome.REFUSED_CALL, "killed by SIGSYS")
        if code < 0:
            return failed(Outcome.CRASHED, f"killed by {_signal_name(-code)}")
        return failed(Outcome.CRASHED, f"left by itself with code {code}")

    def said(self) -> bytes:
        """What it (before its first load) or its supervisor has said so far; bounded."""
        with contextlib.suppress(OSError):
            self._said = (self._said + os.read(self._log, LOG_BYTES))[-LOG_BYTES:]
        return self._said

    def close(self) -> None:
        """Close our descriptors. The process must be collected."""
        for fd in (self.requests, self.replies, self._log, self.pidfd, self._inner_fd):
            if fd is not None:
                os.close(fd)


def _only_child(pid: int) -> int:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:  # a kernel without that file
        children = [
            entry.name
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _parent(int(entry.name)) == pid
        ]
    if len(children) != 1:
        raise ProcessLookupError(f"the supervisor has {len(children)} children, not 1")
    return int(children[0])


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
