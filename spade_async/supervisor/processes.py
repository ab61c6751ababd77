"""Our descendants as the kernel shows them: who is there, what they cost, and the last sweep."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
_PEEK = os.WEXITED | os.WNOHANG | os.WNOWAIT


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One line of /proc/PID/stat."""

    pid: int
    parent: int
    state: str
    cpu_s: float
    """User and system time of the process and of the children it has waited for."""
    start_ticks: int
    """Clock ticks after boot at its start: tells a reused pid from the old one."""


def become_subreaper() -> None:
    """Let orphaned descendants become our children, so that none can slip away from the sweep."""
    # Fails only on kernels before 3.4; the sweep then sees direct descendants only.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def facts(pid: int) -> ProcessFacts | None:
    """Facts of one process, or None when it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The command may hold spaces and parentheses: the fields begin after the last ")".
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20:
        return None
    cpu_ticks = sum(int(ticks) for ticks in fields[11:15])
    return ProcessFacts(pid, int(fields[1]), fields[0], cpu_ticks / _TICKS_PER_S, int(fields[19]))


def descendants(root: int) -> list[ProcessFacts]:
    """Every process below `root` (without it), zombies included, parents before children."""
    children: dict[int, list[ProcessFacts]] = {}
    for entry in os.listdir(_PROC):
        if entry.isdigit():
            found = facts(int(entry))
            if found is not None:
                children.setdefault(found.parent, []).append(found)
    return list(_below(root, children))


def _below(root: int, children: dict[int, list[ProcessFacts]]) -> Iterator[ProcessFacts]:
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(0), []):
            yield child
            waiting.append(child.pid)


def pss_bytes(pid: int) -> int:
    """Proportional set size, or resident minus shared pages (an upper bound) where it is secret.

    0 for a process that is gone.
    """
    folder = _PROC / str(pid)
    try:
        for line in (folder / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except PermissionError:
        with contextlib.suppress(OSError, ValueError, IndexError):
            sizes = (folder / "statm").read_text().split()
            return max(0, int(sizes[1]) - int(sizes[2])) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        pass
    return 0


def sweep(root: int, *, grace_s: float = 2.0) -> list[int]:
    """See to it that nothing below `root` is left: wait, then SIGKILL, then reap.

    Args:
        root: our own pid, with every part already dead.
        grace_s: time for the jail's processes to leave by themselves.

    Returns:
        Pids that had to be killed.
    """
    killed: list[int] = []
    deadline = time.monotonic() + grace_s
    while True:
        _reap_adopted(root)
        living = [p for p in descendants(root) if p.state not in "ZX"]
        now = time.monotonic()
        if not living or now > deadline + 3.0:
            return killed
        if now > deadline:
            for process in living:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, signal.SIGKILL)
                    killed.append(process.pid)
        time.sleep(0.05)


def reap_adopted(own: Collection[int]) -> None:
    """Bury orphans that came to us (the jail of a dead generator), but none of our `own` parts."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitid(os.P_ALL, 0, _PEEK)) is not None and found.si_pid not in own:
            os.waitpid(found.si_pid, os.WNOHANG)


def _reap_adopted(root: int) -> None:
    for process in descendants(root):
        if process.parent == root and process.state == "Z":
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
