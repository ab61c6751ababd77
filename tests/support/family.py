"""Processes, control groups and mounts of a pool, seen from outside through /proc and /sys."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def parents() -> dict[int, int]:
    """Parent of every process that runs; the dead that nobody has collected are left out."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:  # it ended meanwhile
                continue
            if state not in "ZX":
                found[int(entry.name)] = int(parent)
    return found


def descendants(pid: int) -> set[int]:
    """Process ids below a process."""
    children: dict[int, list[int]] = {}
    for child, parent in parents().items():
        children.setdefault(parent, []).append(child)
    found: set[int] = set()
    todo = [pid]
    while todo:
        new = children.get(todo.pop(), [])
        found.update(new)
        todo.extend(new)
    return found


def alive(pids: set[int]) -> set[int]:
    """Those of the processes that still run."""
    return pids & parents().keys()


def wait_gone(pids: set[int], seconds: float) -> set[int]:
    """Those that still run after a while."""
    end = time.monotonic() + seconds
    while (left := alive(pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def depth(pid: int) -> int:
    """Number of PID namespaces that a process is in; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next(len(line.split()) - 1 for line in text.splitlines() if line.startswith("NSpid:"))


def command(pid: int) -> str:
    """Command line of a process; "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


class Family:
    """The processes below one owner at one moment, by what they are. Needs PID namespaces."""

    def __init__(self, owner: int | None = None) -> None:
        self.all = descendants(os.getpid() if owner is None else owner)
        own = depth(os.getpid() if owner is None else owner)
        brokers = sorted(pid for pid in self.all if "_broker_main" in command(pid))
        others = sorted(pid for pid in self.all if "_template_main" in command(pid))
        self.stubs = [pid for pid in brokers if depth(pid) == own]
        self.brokers = [pid for pid in brokers if depth(pid) == own + 1]
        self.templates = [pid for pid in others if depth(pid) == own + 1]
        self.workers = [pid for pid in others if depth(pid) == own + 2]


def control_groups(owner: int) -> set[Path]:
    """Control groups that pools of this owner have made."""
    found = set()
    for folder, names, _ in os.walk("/sys/fs/cgroup"):
        found.update(Path(folder, name) for name in names if name.startswith(f"spade-{owner}-"))
        names[:] = [name for name in names if not name.startswith("spade-")]
    return found


def mounts() -> int:
    """Mounts that this process sees."""
    return len(Path("/proc/self/mountinfo").read_text().splitlines())


def starved() -> float:
    """How many times slower than an idle machine this one may be."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def until(look: Callable[[], T], wanted: Callable[[T], bool], seconds: float) -> T:
    """Look again and again until what is seen is wanted, or the time is over; the last look."""
    end = time.monotonic() + seconds * starved()
    while not wanted(seen := look()) and time.monotonic() < end:
        time.sleep(0.02)
    return seen
