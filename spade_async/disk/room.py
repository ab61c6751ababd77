"""No room on the disk is a pause, not a fault: who cannot write waits, says so, and tries again."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S = 0.5
"""Between two tries."""
_FULL_CODES = frozenset((sqlite3.SQLITE_FULL,))
_TEXTS = ("No space left on device", "os error 28", "Disk quota exceeded", "os error 122")


class WaitCancelled(Exception):
    """The process was told to leave while it waited for room; the write was not done."""


def is_full(fault: BaseException | None) -> bool:
    """Whether an error, or one that caused it, says that the disk or a quota is full."""
    while fault is not None:
        if isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if isinstance(fault, sqlite3.Error):
            if getattr(fault, "sqlite_errorcode", None) in _FULL_CODES:
                return True
        # Libraries in Rust put the errno into the text alone.
        elif any(text in str(fault) for text in _TEXTS):
            return True
        fault = fault.__cause__ or fault.__context__
    return False


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write to the file system of `path`."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


class Room:
    """Tries a write until there is room for it. One thread."""

    def __init__(self) -> None:
        self._waiting: Callable[[str | None], None] = lambda what: None
        self._should_stop: Callable[[], bool] = lambda: False

    def listen(
        self, waiting: Callable[[str | None], None], should_stop: Callable[[], bool]
    ) -> None:
        """Say who is told.

        Args:
            waiting: called at every try with what is waited for, and with None once it is done.
            should_stop: asked between tries.
        """
        self._waiting, self._should_stop = waiting, should_stop

    def write(self, what: str, work: Callable[[], T]) -> T:
        """Do `work`, which writes `what` or nothing, again and again while the disk is full.

        Raises:
            WaitCancelled: `should_stop` became true while waiting.
        """
        has_waited = False
        while True:
            try:
                result = work()
            except Exception as fault:
                if not is_full(fault):
                    raise
                if not has_waited:
                    log.error("no room on the disk for %s: %s; waiting", what, fault)
                has_waited = True
                self._waiting(f"room on the disk for {what}")
                time.sleep(RETRY_S)
                if self._should_stop():
                    raise WaitCancelled(what) from fault
            else:
                if has_waited:
                    log.info("there is room again: %s is written", what)
                    self._waiting(None)
                return result
