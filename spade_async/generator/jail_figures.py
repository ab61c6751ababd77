"""What a generator tells of its jail: counters, events by kind, and the level that holds."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from spade_async.sandbox_policy import SandboxPolicy
from spade_async.sandbox_profiles import profile
from spade_async.sandbox_records import Event

log = logging.getLogger(__name__)

GAUGES = ("live", "spare", "waiting")
TOTALS = (
    "lost_spares", "code_hits", "code_misses", "broker_restarts", "template_restarts",
    "template_rotations", "events_dropped",
)  # fmt: skip
"""Counters of the pool that the run's numbers are made of."""
EVENT = "jail_event_"
"""Begin of the names of the event counters in a heartbeat."""

# What environments do is expected and counted. These are about the machine: a line each.
_WORTH_A_LINE = {
    "start_failed", "template_died", "template_restarted", "broker_died", "broker_restarted",
    "broken",
}  # fmt: skip


class JailFigures(Protocol):
    """The part of `spade_async.sandbox.Pool` that gives figures."""

    @property
    def capabilities(self) -> dict[str, Any]:
        """Level and layers that hold on this machine."""

    def stats(self) -> Mapping[str, int | float]:
        """Counters and gauges."""

    def drain_latencies(self) -> list[float]:
        """Wall seconds of each call since the last drain."""

    def events(self) -> Sequence[Event]:
        """What happened since the last look."""


class JailRecord:
    """Counts the events of one jail and names its figures for the heartbeat."""

    def __init__(self) -> None:
        self._events: Counter[str] = Counter()

    def take(self, jail: JailFigures) -> dict[str, float]:
        """Figures now, by name; events are counted since the start and logged when unexpected."""
        for event in jail.events():
            self._events[event.kind] += 1
            if event.kind in _WORTH_A_LINE:
                log.warning("jail: %s %s: %.300s", event.kind, event.profile, event.detail)
        stats = jail.stats()
        figures = {
            f"jail_{name}": float(stats[name]) for name in (*GAUGES, *TOTALS) if name in stats
        }
        return figures | {f"{EVENT}{kind}": float(n) for kind, n in self._events.items()}


def level_text(capabilities: Mapping[str, Any]) -> str:
    """The level that holds and the layers that do not, on one line."""
    lacking = [
        f"{name} ({layer['detail']})" if layer.get("detail") else name
        for name, layer in capabilities.get("layers", {}).items()
        if not layer.get("ok")
    ]
    missing = ", ".join(lacking) if lacking else "no layer"
    return f"level {capabilities.get('level')}; missing: {missing}"


def write_record(path: Path, policy: SandboxPolicy, capabilities: Mapping[str, Any]) -> None:
    """Put into the run folder what confined the run: level, layers, limits, whole profiles."""
    record = {
        "asked": dataclasses.asdict(policy)
        | {"profiles": [dataclasses.asdict(profile(which)) for which in policy.profiles]},
        "holds": capabilities,
    }
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(record, indent=2) + "\n")
    os.replace(temporary, path)
