"""Generalised advantages of one sequence, and the running scale of returns. Pure numpy.

A trained token is a time step; what stands between two of them (prompt, environment) is the state
the next one is sampled in. With V the value head before the token and R the return at the last one

    delta_t = r_t + gamma V_(t+1) - V_t          r_t = R at the last token, else 0; V_(T+1) = 0
    A_t     = delta_t + gamma lambda A_(t+1)     target_t = A_t + V_t

Source: GAE, arXiv 1506.02438. Formulas and bias: docs/correction.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_DEVIATION = 1e-6
"""Below it values count as all equal: they are centred, and not divided."""


def generalised_advantages(
    values: Floats, final_return: float, gamma: float, gae_lambda: float
) -> Floats:
    """[T] advantages of the trained tokens of a sequence.

    Example: values 0 and 0, return 1, gamma 1, lambda 1: 1 and 1; lambda 0: 0 and 1.

    Args:
        values: [T] of the state each token was sampled in.
        final_return: what the whole sequence is worth, paid at its last token.
        gamma: discount per token.
        gae_lambda: 1 is return minus value, 0 the one-step difference.
    """
    following = np.append(values[1:], 0.0)
    deltas = gamma * following - values
    deltas[-1] += final_return
    found = np.empty_like(deltas)
    coming = 0.0
    for t in range(len(deltas) - 1, -1, -1):
        coming = deltas[t] + gamma * gae_lambda * coming
        found[t] = coming
    return found


def normalised(values: Floats) -> Floats:
    """Less their mean, over their deviation unless all are equal."""
    centred = values - values.mean()
    deviation = float(centred.std())
    divisor = 1.0 if deviation < LEAST_DEVIATION else deviation
    found: Floats = centred / divisor
    return found


@dataclass(frozen=True, slots=True)
class ReturnScale:
    """Mean and spread of all returns of a role so far (Welford's sums)."""

    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared distances from the mean."""

    @property
    def deviation(self) -> float:
        """Of the population; 1 while all returns were equal."""
        found = math.sqrt(self.squares / self.count) if self.count else 0.0
        return found if found >= LEAST_DEVIATION else 1.0

    def seen(self, returns: Floats) -> ReturnScale:
        """The scale after some more returns."""
        if not returns.size:
            return self
        count = self.count + returns.size
        shift = float(returns.mean()) - self.mean
        mean = self.mean + shift * returns.size / count
        spread = float(((returns - returns.mean()) ** 2).sum())
        squares = self.squares + spread + shift**2 * self.count * returns.size / count
        return ReturnScale(count, mean, squares)

    def scaled(self, value: float, limit: float, *, normalise: bool) -> float:
        """``clip((value - mean) / deviation, -limit, limit)``; a limit of 0 is none."""
        found = (value - self.mean) / self.deviation if normalise else value
        return min(max(found, -limit), limit) if limit else found
