"""Ends a process of the engine when its parent is gone: vLLM's own live on, holding their memory.

The parent is watched by its pidfd, so its death is seen at once and its pid cannot be mistaken.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import sys
import threading
import time

OURS = "SPADE_ASYNC_VLLM"
"""Environment variable that marks the processes of an engine of ours."""
GRACE_S = 3.0
"""Time for vLLM to leave by itself after SIGTERM."""

_lock = threading.Lock()
_watching: threading.Thread | None = None


def watch_parent() -> threading.Thread | None:
    """Watch the parent from a daemon thread, in a process that multiprocessing has made.

    Harmless when repeated. A parent that is dead already ends this process at once.
    """
    global _watching
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return None
    with _lock:
        if _watching is None:
            _watching = threading.Thread(
                target=_wait, args=(parent.pid,), name="parent-watchdog", daemon=True
            )
            _watching.start()
    return _watching


def _wait(pid: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        _leave(pid)
    # The pid may have been given anew before it was opened: then we are somebody else's child.
    if os.getppid() == pid:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll()
    _leave(pid)


def _leave(parent: int) -> None:
    sys.stderr.write(f"pid {os.getpid()}: parent {parent} is gone; leaving\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGTERM)
    # The handler runs in the main thread, which may be inside a long computation.
    time.sleep(GRACE_S)
    os._exit(1)
