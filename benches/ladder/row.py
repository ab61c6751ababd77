"""One rung of the ladder: how to take samples of it, or why there are none."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


class Unavailable(Exception):
    """This rung cannot be measured here; the text says why and what to do."""


@dataclass
class Row:
    """A measured quantity in microseconds, named as in the JSON (``group.name``)."""

    key: str
    label: str
    take: Callable[[], Sequence[float]]
    """Take one turn: the microseconds of the samples in it."""
    every: int = 1
    """Takes part in every n-th round: for rungs that cost tens of milliseconds."""
    samples: list[float] = field(default_factory=list)
    missing: str | None = None
    """Why there are no samples, or why they stopped coming."""

    def turn(self) -> None:
        """Take one turn; a rung that breaks stays in the table with its reason."""
        if self.missing is not None:
            return
        try:
            self.samples.extend(self.take())
        except Exception as error:
            self.missing = f"failed: {type(error).__name__}: {error}"[:300]


def absent(key: str, label: str, reason: str) -> Row:
    """A rung that stands in the table without a figure."""
    return Row(key, label, take=tuple, missing=reason)


def figure(samples: Sequence[float]) -> dict[str, float | int] | None:
    """Median, p10, p99 and n in the unit of the samples; None without samples."""
    if not samples:
        return None
    ordered = sorted(samples)
    return {
        "median": round(statistics.median(ordered), 3),
        "p10": round(ordered[int(0.10 * (len(ordered) - 1))], 3),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1) + 0.5)], 3),
        "n": len(ordered),
    }
