"""Whose turn it is on a device that learner and generators share.

Two locks on files of the run folder. "wanted" is held by the learner from when it needs the
device until it has left it; "device" by the learner while it is on it, and by the generators that
are, who share it. A generator looks at "wanted", lets its engine sleep, and gives "device" up. The
kernel frees the locks of a process that dies, however it dies: nobody waits for a dead one, and a
generator that comes back loads its model when the device is free.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_S = 0.02
"""Between two looks at a lock; nothing beside a pass of a model."""


class DeviceTurn:
    """One process's hand on the two locks. Not for several threads at once."""

    def __init__(self, folder: Path) -> None:
        """Open the files in an existing folder; they are made when they are missing."""
        self._wanted = _open(folder / "device.wanted")
        self._device = _open(folder / "device.lock")

    def close(self) -> None:
        """Give up whatever is held. Harmless when repeated."""
        for fd in (self._wanted, self._device):
            if fd >= 0:
                os.close(fd)
        self._wanted = self._device = -1

    @contextmanager
    def as_learner(self, tick: Callable[[], None]) -> Iterator[float]:
        """Be on the device alone.

        Args:
            tick: called between two looks while it waits; it may raise to give up.

        Yields:
            Seconds it waited.
        """
        began = time.monotonic()
        try:
            for fd in (self._wanted, self._device):
                while not _try_lock(fd, fcntl.LOCK_EX):
                    tick()
                    time.sleep(POLL_S)
            yield time.monotonic() - began
        finally:
            # In this order: whoever sees "wanted" free finds the device free.
            for fd in (self._device, self._wanted):
                fcntl.flock(fd, fcntl.LOCK_UN)

    @property
    def is_wanted(self) -> bool:
        """Whether the learner waits for the device, or is on it."""
        if not _try_lock(self._wanted, fcntl.LOCK_SH):
            return True
        fcntl.flock(self._wanted, fcntl.LOCK_UN)
        return False

    def try_enter(self) -> bool:
        """Take the device as a generator; False while the learner has it or wants it."""
        return not self.is_wanted and _try_lock(self._device, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Give the device up as a generator."""
        fcntl.flock(self._device, fcntl.LOCK_UN)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
