"""What a run costs: wall and CPU seconds and memory, accumulated over resumes in resources.json."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from spade_async.config.run_folder import RunFolder
from spade_async.supervisor.processes import descendants, pss_bytes

SAMPLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Resources:
    """Totals of a run folder; None where nothing was measured yet."""

    wall_seconds: float = 0.0
    """From the start of `train` to its end, warm start included, summed over starts."""
    cpu_seconds: float = 0.0
    """User and system time of the supervisor and everything below it."""
    peak_memory_gib: float | None = None
    """Largest sum of PSS over all processes, sampled every 3 s."""
    warm_start_seconds: float | None = None
    """Wall time until the model was ready (seconds when it was in the cache)."""
    warm_start_cpu_seconds: float | None = None
    restarts: int = 0
    """How often the run was resumed."""


def resources_path(folder: RunFolder) -> Path:
    """Where the totals are."""
    return folder.root / "resources.json"


def read_resources(folder: RunFolder) -> Resources | None:
    """Totals of a run folder, or None when there are none (or they are damaged)."""
    try:
        return Resources(**json.loads(resources_path(folder).read_text()))
    except (OSError, ValueError, TypeError):
        return None


class ResourceMeter:
    """Samples this process and all below it; writes the totals after each sample."""

    def __init__(self, folder: RunFolder, *, is_resumed: bool) -> None:
        before = read_resources(folder) or Resources()
        if is_resumed:
            before = replace(before, restarts=before.restarts + 1)
        self._base = before
        self._folder = folder
        self._started_s = time.monotonic()
        self._cpu_start_s = _own_cpu_s()
        self._cpu_s = 0.0
        self._peak_bytes = int((before.peak_memory_gib or 0.0) * 2**30)
        self._warm_start: tuple[float, float] | None = None
        self._next_s = 0.0

    def warm_start(self, wall_s: float, cpu_s: float) -> None:
        """Record what making the model cost."""
        self._warm_start = (wall_s, cpu_s)

    def cpu_now_s(self) -> float:
        """CPU seconds since the start of this meter, of us and all below us."""
        running = sum(process.cpu_s for process in descendants(os.getpid()))
        # Monotone: a process that nobody waited for takes its time with it.
        self._cpu_s = max(self._cpu_s, _own_cpu_s() - self._cpu_start_s + running)
        return self._cpu_s

    def tick(self, *, force: bool = False) -> None:
        """Sample and write, at most every `SAMPLE_S` unless forced."""
        now = time.monotonic()
        if now < self._next_s and not force:
            return
        self._next_s = now + SAMPLE_S
        me = os.getpid()
        total = pss_bytes(me) + sum(pss_bytes(p.pid) for p in descendants(me))
        self._peak_bytes = max(self._peak_bytes, total)
        self.cpu_now_s()
        self._write()

    def totals(self) -> Resources:
        """Totals as of the last sample."""
        base = self._base
        warm = self._warm_start
        return replace(
            base,
            wall_seconds=base.wall_seconds + time.monotonic() - self._started_s,
            cpu_seconds=base.cpu_seconds + self._cpu_s,
            peak_memory_gib=self._peak_bytes / 2**30 if self._peak_bytes else None,
            warm_start_seconds=_added(base.warm_start_seconds, warm[0] if warm else None),
            warm_start_cpu_seconds=_added(base.warm_start_cpu_seconds, warm[1] if warm else None),
        )

    def _write(self) -> None:
        target = resources_path(self._folder)
        temporary = target.with_suffix(".json.tmp")
        # Costs are told as well as can be: a full disk is named by whoever cannot do without it.
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(asdict(self.totals()), indent=2) + "\n")
            os.replace(temporary, target)


def _added(before: float | None, now: float | None) -> float | None:
    if now is None:
        return before
    return (before or 0.0) + now


def _own_cpu_s() -> float:
    """Our own time and that of everything we have waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
