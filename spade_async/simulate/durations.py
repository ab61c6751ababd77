"""How long things take in a simulation: distributions with a mean that is known in closed form.

Units are the caller's: seconds of a task, or tokens of a sequence.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


class Durations(Protocol):
    """Something that can be drawn and whose mean is known."""

    @property
    def mean(self) -> float:
        """Expected value."""

    def draw(self, rng: random.Random) -> float:
        """One value, at least 0."""

    def survival(self, value: float) -> float:
        """Probability of a larger one."""

    @property
    def most(self) -> float:
        """A value that is practically never passed."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same."""

    mean: float

    def draw(self, rng: random.Random) -> float:
        """The value."""
        return self.mean

    def survival(self, value: float) -> float:
        """1 below the value, 0 from it on."""
        return float(value < self.mean)

    @property
    def most(self) -> float:
        """The value."""
        return self.mean


@dataclass(frozen=True, slots=True)
class LogNormal:
    """exp of a normal variable, cut off at `cap`.

    Example: ``LogNormal(median=2000, sigma=1, cap=16384).mean`` is about 3142.
    """

    median: float
    sigma: float
    cap: float = math.inf

    @classmethod
    def of_mean(cls, mean: float, sigma: float) -> LogNormal:
        """The one without a cap that has this mean."""
        return cls(mean * math.exp(-0.5 * sigma * sigma), sigma)

    @property
    def mean(self) -> float:
        """E[min(X, cap)], closed form."""
        if self.sigma == 0.0:
            return min(self.median, self.cap)
        whole = self.median * math.exp(0.5 * self.sigma**2)
        if math.isinf(self.cap):
            return whole
        at = math.log(self.cap / self.median) / self.sigma
        return whole * _below(at - self.sigma) + self.cap * _below(-at)

    def draw(self, rng: random.Random) -> float:
        """One value."""
        return min(self.median * math.exp(self.sigma * rng.gauss(0.0, 1.0)), self.cap)

    def survival(self, value: float) -> float:
        """P(min(X, cap) > value)."""
        if value >= self.most:
            return 0.0
        if value <= 0.0:
            return 1.0
        if self.sigma == 0.0:
            return float(value < self.median)
        return _below(-math.log(value / self.median) / self.sigma)

    @property
    def most(self) -> float:
        """The cap, or nine deviations above the median."""
        return min(self.cap, self.median * math.exp(9.0 * self.sigma))


class Measured:
    """Drawn from what was measured, each value alike."""

    def __init__(self, values: Sequence[float]) -> None:
        """At least one value.

        Raises:
            ValueError: none at all.
        """
        if not values:
            raise ValueError("no values to draw from")
        self._values = sorted(values)
        self.mean = sum(self._values) / len(self._values)

    def draw(self, rng: random.Random) -> float:
        """One of them."""
        return rng.choice(self._values)

    def survival(self, value: float) -> float:
        """Share of larger ones."""
        return sum(v > value for v in self._values) / len(self._values)

    @property
    def most(self) -> float:
        """The largest."""
        return self._values[-1]


def largest_of(durations: Durations, count: int, *, cells: int = 20_000) -> float:
    """Expected maximum of `count` independent draws.

    The integral of 1 - F(x)^count from 0 to the largest value, by the trapezoid rule on a grid that
    is even in the square root: long tails need few cells, and small values are not skipped.
    """
    most = durations.most
    if isinstance(durations, Fixed) or count == 1:
        return durations.mean
    total = last = 0.0
    before = 1.0
    for cell in range(1, cells + 1):
        share = cell / cells
        at = most * share**4
        now = 1.0 - (1.0 - durations.survival(at)) ** count
        total += 0.5 * (before + now) * (at - last)
        before, last = now, at
    return total


def tail_factor(durations: Durations, count: int) -> float:
    """E[largest of `count`] / E[one]: how much longer a group takes than its mean member."""
    return largest_of(durations, count) / durations.mean


def _below(value: float) -> float:
    """Standard normal distribution function."""
    return 0.5 * math.erfc(-value / math.sqrt(2.0))


def mean(values: Iterable[float]) -> float:
    """Arithmetic mean of at least one value."""
    items = list(values)
    return sum(items) / len(items)
