"""What is said of a metric: unit, x-axis, meaning."""

from __future__ import annotations

from dataclasses import dataclass

LEARNER_STEP = "learner step"


@dataclass(frozen=True, slots=True)
class Metric:
    """What one tag means."""

    unit: str
    axis: str
    text: str
    """One sentence a newcomer understands."""


def per_step(unit: str, text: str) -> Metric:
    """A metric over learner steps."""
    return Metric(unit, LEARNER_STEP, text)
