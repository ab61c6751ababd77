"""A lower confidence bound of a mean of few bounded numbers, valid at any number of them.

The bound is by betting. For a candidate mean m, the capital of someone who bets that the mean is
larger, ``K(m) = mean over c in GRID of prod_i (1 + (c / m) (x_i - m))`` with x in [0, 1], starts at
1 and does not grow on average if the mean is m or less. By Ville's inequality it ever exceeds 1 / d
with probability at most d. The bound is the largest m whose capital has passed that.

Why not another one (figures in docs/regret.md): Student's t has no width at all when all pairs
agree, which is the rule with 8 pairs of wins and losses, so it covers far less than it says;
empirical Bernstein pays ``7 R ln(2/d) / (3 (n - 1))`` for the range R, more than R itself at n = 8.
Betting assumes the range alone, adapts to the spread, and holds at a stopping time: pairs may be
stopped early (`early.py`) without a correction.

Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (2024).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

_GRID = tuple((i + 0.5) / 32 for i in range(32))
"""Shares of the largest bet, 1 / m, that are averaged: fixed before the data, order-free."""
_HALVINGS = 36


def lower_bound(
    values: Sequence[float], *, confidence: float, lowest: float, highest: float
) -> float:
    """Lower bound of the mean of `values`, at least `lowest`; invariant to their order.

    The true mean is below it with probability at most 1 - confidence, whatever the distribution on
    [lowest, highest], and whenever one looks.

    Args:
        values: at least one, each within [lowest, highest].
        confidence: in (0, 1).
        lowest: of a value.
        highest: of a value, above `lowest`.

    Raises:
        ValueError: no value, or one outside the range.
    """
    if not values or not all(lowest <= value <= highest for value in values):
        raise ValueError(f"{len(values)} values: need one or more within [{lowest}, {highest}]")
    span = highest - lowest
    shares = Counter((value - lowest) / span for value in values)
    enough = -math.log1p(-confidence)
    below, above = 0.0, sum(share * n for share, n in shares.items()) / len(values)
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        if middle > 0.0 and _log_capital(shares, middle) >= enough:
            below = middle
        else:
            above = middle
    return lowest + span * below


def _log_capital(shares: Mapping[float, int], mean: float) -> float:
    """Logarithm of K(mean); falls with `mean`."""
    gains = [(share / mean - 1.0, n) for share, n in shares.items()]
    logs = [sum(n * math.log1p(c * gain) for gain, n in gains) for c in _GRID]
    most = max(logs)
    return most + math.log(sum(math.exp(value - most) for value in logs) / len(_GRID))
