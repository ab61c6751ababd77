"""Group-relative advantages (step 8). The caller leaves a missing sample out; it is no number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev

EPS = 1e-6
"""Below this standard deviation a group has nothing to compare."""


def group_advantages(returns: Sequence[float], *, normalise_std: bool) -> list[float]:
    """Group-relative advantages: return minus the group mean, in input order.

    Args:
        returns: [G] episode returns of one group, in the environment's reward units.
        normalise_std: also divide by the population std; a group with std below EPS gives zeros.

    Raises:
        ValueError: fewer than two returns (a lone episode has no baseline), or one is not finite.
    Source: GRPO (DeepSeekMath, section 4.1); without the std term it is Dr. GRPO.
    """
    if len(returns) < 2:
        raise ValueError(f"{len(returns)} return(s): a group needs at least 2 to have a baseline")
    if not all(math.isfinite(value) for value in returns):
        raise ValueError("a return is not finite: leave the sample out as missing")
    mean = fmean(returns)
    centred = [value - mean for value in returns]
    if not normalise_std:
        return centred
    deviation = pstdev(returns, mu=mean)
    if deviation < EPS:
        return [0.0] * len(returns)
    return [value / deviation for value in centred]
