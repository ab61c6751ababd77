"""Counters of a pool, by the names that the native core uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from spade_async.jail_backends.answer import CODES

LATENCY_SAMPLES = 1 << 16


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

    def answered(self, outcome: str, wall_s: float) -> None:
        """Note one answered call."""
        self.outcomes[outcome] += 1
        if len(self.latencies) < LATENCY_SAMPLES:
            self.latencies.append(wall_s)

    def pairs(self) -> list[tuple[str, int]]:
        """Name and value of every counter."""
        own = [(name, getattr(self, name))
               for name in ("acquired", "busy", "killed", "started", "lost_spares")]  # fmt: skip
        return own + list(self.outcomes.items())
