"""The processes of a run: spawned with a clean command line, watched by pidfd, killed as groups."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TERM_GRACE_S = 5.0
"""Between SIGTERM and SIGKILL."""

_CHILD_ENVIRONMENT = {
    # Threads are configured per part; a default of "all cores" in each would oversubscribe.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, slots=True)
class PartCommand:
    """What to start: a name for logs and messages, and the command line without the lifeline."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables on top of the supervisor's own: which GPUs it sees."""


@dataclass(slots=True)
class Part:
    """One running (or dead) process of the run."""

    name: str
    process: subprocess.Popen[bytes]
    pidfd: int
    log: Path
    log_start: int = 0
    """Bytes the log had when it was started: what is before is of an earlier one."""
    returncode: int | None = None
    """Exit code, or minus the signal; None while it lives."""
    died_s: float = field(default=0.0)
    """time.monotonic() when its death was noticed."""

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group."""
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """Whether its death has not been noticed yet."""
        return self.returncode is None

    def reap(self) -> bool:
        """Take the exit code if it is dead. Returns whether it is."""
        if self.returncode is None:
            self.returncode = self.process.poll()
            if self.returncode is not None:
                self.died_s = time.monotonic()
                os.close(self.pidfd)
                if self.process.stdin is not None:
                    self.process.stdin.close()
        return self.returncode is not None

    def send(self, signum: signal.Signals) -> None:
        """Signal the process (not its group); a dead one is left alone."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signum)

    def tell(self, line: bytes) -> None:
        """Write to its standard input, when it was spawned to listen; lost when it is dead."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, BlockingIOError, ValueError):
                self.process.stdin.write(line)

    def kill_group(self) -> None:
        """SIGKILL the process and everything in its group; only before it is reaped."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


class Lifeline:
    """The pipe whose write end only the supervisor holds: EOF tells the parts it is gone."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()

    def close(self) -> None:
        """Let go: parts that still live leave at once."""
        for fd in (self.read_fd, self._write_fd):
            with contextlib.suppress(OSError):
                os.close(fd)


def spawn(
    command: PartCommand,
    *,
    log: Path,
    lifeline: Lifeline,
    pass_fds: Sequence[int] = (),
    listens: bool = False,
) -> Part:
    """Start one part in its own session, its output appended to `log`.

    Its own session, so that Ctrl-C in the terminal reaches the supervisor alone. One that `listens`
    can be told lines on its standard input (`Part.tell`).
    """
    argv = [*command.argv, "--lifeline-fd", str(lifeline.read_fd)]
    with log.open("ab") as sink:
        log_start = sink.tell()
        process = subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            pass_fds=(lifeline.read_fd, *pass_fds),
            env={**os.environ, **_CHILD_ENVIRONMENT, **command.environment},
        )
    if process.stdin is not None:
        os.set_blocking(process.stdin.fileno(), False)
    return Part(command.name, process, os.pidfd_open(process.pid), log, log_start)


def run_commands(run_dir: Path, endpoint: str, num_generators: int) -> list[PartCommand]:
    """Command lines of coordinator, generators and learner of one run."""
    names = [("coordinator", "coordinator")]
    names += [(f"gen-{index}", "generator") for index in range(num_generators)]
    names.append(("learner", "learner"))
    return [
        PartCommand(
            name,
            (
                sys.executable, "-m", f"spade_async.{package}", "--run-dir", str(run_dir),
                "--name", name, "--endpoint", endpoint,
            ),
        )
        for name, package in names
    ]  # fmt: skip


def wait_for(parts: Iterable[Part], timeout_s: float) -> list[Part]:
    """Wait until all are dead or the time is over. Returns those that still live."""
    deadline = time.monotonic() + timeout_s
    waiting = [part for part in parts if not part.reap()]
    while waiting:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            break
        poll = select.poll()
        for part in waiting:
            poll.register(part.pidfd, select.POLLIN)
        # A signal only wakes the wait; the caller's handler has counted it.
        poll.poll(remaining * 1000)
        waiting = [part for part in waiting if not part.reap()]
    return waiting


def stop_all(parts: Sequence[Part], *, grace_s: float = TERM_GRACE_S) -> None:
    """SIGTERM everything that lives, wait `grace_s`, then SIGKILL every group."""
    living = [part for part in parts if not part.reap()]
    for part in living:
        part.send(signal.SIGTERM)
    wait_for(living, grace_s)
    kill_all(parts)


def kill_all(parts: Sequence[Part]) -> None:
    """SIGKILL every living group at once and take the exit codes.

    What a dead part left behind is found by `processes.sweep`: its group id may belong to
    somebody else by now.
    """
    for part in parts:
        if not part.reap():
            part.kill_group()
    wait_for(parts, 5.0)
