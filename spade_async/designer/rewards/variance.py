"""The variance bonus: how close the spread of returns is to that of a fair coin.

    bonus(r_1 .. r_n) = exp(-(var - 0.25)^2 / 0.02),  var = population variance, n > 1

1 when half of the returns are 1 and half 0; 0.044 when all are equal. Source: SPADE's code
(`--spade-env-use-variance`); R-Zero and SPICE peak their proposer's reward the same way. Use it as
a small addition where returns are 0 or 1; with partial rewards a variance of 0.25 means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean


def population_variance(returns: Sequence[float]) -> float:
    """Mean squared distance from the mean; 0 for a single return."""
    mean = fmean(returns)
    return fmean((value - mean) ** 2 for value in returns)


def variance_bonus(returns: Sequence[float]) -> float | None:
    """Bonus in (0, 1]; None with fewer than two returns: they have no spread."""
    if len(returns) < 2:
        return None
    return math.exp(-((population_variance(returns) - 0.25) ** 2) / 0.02)
