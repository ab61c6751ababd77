"""One CPU for everything that is measured."""

from __future__ import annotations

import os


def pin(count: int = 1) -> list[int]:
    """Bind this process, and with it all it will start, to the last `count` CPUs it may use.

    The first CPU of a machine often serves interrupts; the last one rarely does.
    """
    usable = sorted(os.sched_getaffinity(0))
    chosen = usable[-count:]
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), chosen)
    return chosen


class Pinned:
    """The same as a scope: the earlier set comes back at the end."""

    def __init__(self, count: int = 1) -> None:
        self._count = count

    def __enter__(self) -> list[int]:
        self._before = os.sched_getaffinity(0)
        return pin(self._count)

    def __exit__(self, *error: object) -> None:
        for task in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(task), self._before)
