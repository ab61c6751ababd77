"""Counters of all generators' jails, added up for TensorBoard (docs/metrics.md, `jail/`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

_EVENT = "jail_event_"
_TOTALS = (
    "lost_spares", "template_restarts", "template_rotations", "broker_restarts", "events_dropped",
)  # fmt: skip
_COUNTED = {f"jail_{name}" for name in (*_TOTALS, "code_hits", "code_misses")}


class JailTotals:
    """Takes differences of heartbeats, so that a generator that starts anew loses nothing."""

    def __init__(self) -> None:
        self._so_far: Counter[str] = Counter()
        self._at_step: Counter[str] = Counter()
        self._seen: set[str] = set()

    def add(self, before: Mapping[str, float], now: Mapping[str, float]) -> None:
        """Two heartbeats of one generator, one after the other."""
        counted = [name for name in now if name in _COUNTED or name.startswith(_EVENT)]
        # A counter that fell is that of a new process: all it has counted is new.
        if any(now[name] < before.get(name, 0.0) for name in counted):
            before = {}
        for name in counted:
            self._so_far[name] += int(now[name] - before.get(name, 0.0))
            self._seen.add(name)

    def flush(self) -> dict[str, float]:
        """Numbers by tag; those that are "since the step before" start anew."""
        found = {
            f"jail/{name}": float(self._so_far[f"jail_{name}"])
            for name in _TOTALS
            if f"jail_{name}" in self._seen
        }
        new = Counter({name: n - self._at_step[name] for name, n in self._so_far.items()})
        loads = new["jail_code_hits"] + new["jail_code_misses"]
        if loads > 0:
            found["jail/code_hit_share"] = new["jail_code_hits"] / loads
        for name, count in new.items():
            if name.startswith(_EVENT) and count > 0:
                found[f"jail/event/{name.removeprefix(_EVENT)}"] = float(count)
        self._at_step = self._so_far.copy()
        return found
