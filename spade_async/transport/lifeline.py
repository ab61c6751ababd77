"""Ends this process when its supervisor is gone: the pipe only the supervisor holds reads EOF."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable

EXIT_SUPERVISOR_LOST = 75
"""Exit status of a process whose supervisor vanished (EX_TEMPFAIL)."""


def watch(fd: int | None, on_lost: Callable[[], None] | None = None) -> threading.Thread | None:
    """Watch the read end of the lifeline from a daemon thread.

    At EOF the process ends at once with status 75: no clean-up runs, because everything that must
    survive is durable by then and a clean-up could wait for someone who is dead as well.

    Args:
        fd: read end of the pipe; None watches nothing (a part started by hand).
        on_lost: called first (best effort), e.g. to kill the sandbox; must not block.
    """
    if fd is None:
        return None
    os.set_inheritable(fd, False)
    thread = threading.Thread(target=_wait, args=(fd, on_lost), name="lifeline", daemon=True)
    thread.start()
    return thread


def _wait(fd: int, on_lost: Callable[[], None] | None) -> None:
    # A byte on the pipe means nothing; an error (closed fd) counts as lost as well.
    with contextlib.suppress(OSError):
        while os.read(fd, 64):
            pass
    try:
        if on_lost is not None:
            on_lost()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.write(f"pid {os.getpid()}: the supervisor is gone; leaving at once\n")
            sys.stderr.flush()
        os._exit(EXIT_SUPERVISOR_LOST)
