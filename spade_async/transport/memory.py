"""Memory of blocks that come and go: kept by the process instead of fetched from the kernel again.

A block of 256 KiB is 64 pages. Given back to the kernel when it is freed and asked for again for
the next message, each page is a fault that costs more than copying it does.
"""

from __future__ import annotations

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's options, from malloc.h."""
_KEPT_BYTES = 32 << 20
"""Most free bytes that an allocator keeps at its end; larger blocks are mapped one by one."""


def keep_freed_blocks() -> None:
    """Let this process keep up to 32 MiB that it freed; nothing happens without glibc. Idempotent.

    Memory that was never used is not taken, so a process of small messages grows by nothing.
    """
    with contextlib.suppress(OSError, AttributeError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(_TRIM_THRESHOLD, _KEPT_BYTES)
        set_option(_MMAP_THRESHOLD, _KEPT_BYTES)
