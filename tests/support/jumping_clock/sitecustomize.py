"""Sets the wall clock of a Python process back and forward by hours, three times a second.

Taken in by every process of a run whose PYTHONPATH begins with this folder. The jumps follow the
monotonic clock, so all processes jump together, as those of one machine do.
"""

from __future__ import annotations

import time

HOURS = (0.0, 5.0, -7.0, 0.0, 24.0, -1.0)
_real = time.time


def jumping() -> float:
    return _real() + HOURS[int(time.monotonic() * 3) % len(HOURS)] * 3600.0


time.time = jumping
time.time_ns = lambda: int(jumping() * 1e9)
