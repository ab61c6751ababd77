"""A straight line through repeated times, and whether it rises. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """Least squares through (0, y0), (1, y1), ..."""

    slope: float
    standard_error: float
    """Of the slope."""
    intercept: float

    @property
    def is_flat(self) -> bool:
        """Whether the slope is within two standard errors of none."""
        return abs(self.slope) <= 2.0 * self.standard_error


def fit(values: Sequence[float]) -> Line:
    """Fit a line over the index.

    Raises:
        ValueError: fewer than three values have no error of a slope.
    """
    n = len(values)
    if n < 3:
        raise ValueError(f"{n} values: a slope with an error needs at least 3")
    mean_x, mean_y = (n - 1) / 2, sum(values) / n
    spread = sum((x - mean_x) ** 2 for x in range(n))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in enumerate(values)) / spread
    intercept = mean_y - slope * mean_x
    rest = sum((y - intercept - slope * x) ** 2 for x, y in enumerate(values))
    return Line(slope, math.sqrt(rest / (n - 2) / spread), intercept)
