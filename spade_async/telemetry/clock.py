"""The two clocks of a run, and which is for what.

Deadlines, pauses and limits are `time.monotonic` alone. Wall-clock time is for records that a
person reads. Records that are subtracted from one another later (steps, samples, tasks in the
ledger) get `steady_unix_s`: a wall clock that nobody can set while the process lives.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_BEGIN_UNIX_S, _BEGIN_S = time.time(), time.monotonic()


def steady_unix_s() -> float:
    """Unix seconds at the start of this process plus what has passed since, by its own clock."""
    return _BEGIN_UNIX_S + (time.monotonic() - _BEGIN_S)


@cache
def boot_id() -> str:
    """Names this start of this machine; "" when it has no name.

    Values of `time.monotonic` of two processes can be compared where it is the same.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
