"""CPU-seconds of this process and of others that work for it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Sequence[int] = ()) -> float:
    """User and system time of this process and of those, all their threads included."""
    return time.process_time() + sum(map(_of, pids))


def _of(pid: int) -> float:
    # The name in parentheses may hold spaces; utime and stime are fields 14 and 15.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
