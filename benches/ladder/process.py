"""The processes of a pool as the kernel shows them: workers, what they hold, when they end."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from pathlib import Path

from benches.ladder.row import Unavailable


def children(pid: int) -> list[int]:
    """Children of a process, oldest first; empty when it is gone."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        texts = [Path(f"/proc/{pid}/task/{task}/children").read_text() for task in tasks]
    except OSError:
        return []
    found = [int(word) for text in texts for word in text.split()]
    return sorted(found, key=_started)


def _started(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return 0


class Tree:
    """The processes of one pool: its broker is found by what appears when the pool is started."""

    def __init__(self, start: Callable[[], object]) -> None:
        before = set(children(os.getpid()))
        start()
        new = [pid for pid in children(os.getpid()) if pid not in before]
        brokers = [broker for stub in new for broker in children(stub)]
        self.broker: int | None = brokers[0] if len(brokers) == 1 else None

    def workers(self) -> list[int]:
        """Process ids of the workers, oldest first; each is the first of its own namespace.

        Raises:
            Unavailable: they cannot be told from other processes here.
        """
        if self.broker is None:
            raise Unavailable("the pool's broker was not found below this process")
        return [pid for pid in children(self.broker) if _is_first(pid)]


def _is_first(pid: int) -> bool:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith("NSpid:") and line.split()[-1] == "1" for line in lines)


def gone(pid: int) -> None:
    """Wait until a process has been collected by its parent."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # No select(): its descriptors end at 1023, and 200 live workers hold more than that.
        watched = select.poll()
        watched.register(handle, select.POLLIN)
        watched.poll(10_000)
        while True:
            os.kill(pid, 0)
            os.sched_yield()
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def memory(pid: int) -> dict[str, int]:
    """KiB of a process by kind: private dirty, shared, page tables. As its owner or as root."""
    fields: dict[str, int] = {}
    for name in ("smaps_rollup", "status"):
        for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
            label, _, value = line.partition(":")
            words = value.split()
            if len(words) == 2 and words[1] == "kB":
                fields[label] = int(words[0])
    return {
        "private_dirty": fields["Private_Dirty"],
        "page_tables": fields.get("VmPTE", 0),
        "resident": fields["Rss"],
    }
