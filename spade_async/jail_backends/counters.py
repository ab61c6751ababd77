"""Counters of a pool, by the names that the native core uses."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from spade_async.jail_backends.answer import CODES

LATENCY_SAMPLES = 1 << 16
NUM_EVENTS = 4096

EventRow: TypeAlias = tuple[float, str, str, int | None, str]
"""(unix time, kind, profile, session or None, detail), as `sandbox_records.Event` reads it."""


@dataclass
class Counters:
    """What a pool has done so far."""

    acquired: int = 0
    """Sessions that got a child."""
    busy: int = 0
    """Sessions refused because the queue was full."""
    killed: int = 0
    """Children killed by the host, at the end of a session or for a limit."""
    started: int = 0
    """Children that became ready."""
    lost_spares: int = 0
    """Children that died before they were used."""
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CODES, 0))
    latencies: list[float] = field(default_factory=list)
    """Wall seconds per call since the last drain."""
    events: deque[EventRow] = field(default_factory=lambda: deque(maxlen=NUM_EVENTS))

    def answered(self, outcome: str, wall_s: float) -> None:
        """Note one answered call."""
        self.outcomes[outcome] += 1
        if len(self.latencies) < LATENCY_SAMPLES:
            self.latencies.append(wall_s)

    def event(self, kind: str, profile: str, session: int | None, detail: str) -> None:
        """Note something worth a line."""
        self.events.append((time.time(), kind, profile, session, detail))

    def pairs(self) -> list[tuple[str, int]]:
        """Name and value of every counter."""
        own = [(name, getattr(self, name))
               for name in ("acquired", "busy", "killed", "started", "lost_spares")]  # fmt: skip
        return own + list(self.outcomes.items())
