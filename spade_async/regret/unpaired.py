"""The reference's estimate: arms on seeds of their own (`run.compat = "reference"`).

Regret is the mean of the hinted returns less the mean of the unhinted ones. What is missing of the
hinted arm, by whomever's fault, counts 0; of the other arm it is left out. So two programs of equal
worth differ by their instances, and a hint looks the worse the more of its plays fail: see
docs/compat.md for what ours does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

from spade_async.regret.early import classify, success
from spade_async.types import MissingRegret, RegretEstimate

FAULT = 0.0
"""What a missing hinted episode counts."""


def filled(returns: Sequence[float | None]) -> list[float]:
    """[n] hinted returns with `FAULT` where one is missing."""
    return [FAULT if value is None else value for value in returns]


def unpaired(
    hinted: Sequence[float | None],
    plain: Sequence[float | None],
    *,
    leak_share: float,
    mastered_at: float,
    out_of_reach_at: float,
) -> RegretEstimate | MissingRegret:
    """Difference of two means over different instances.

    Args:
        hinted: [num hinted plays] returns; None where missing.
        plain: [num unhinted plays] returns; None where missing.
        leak_share: share of seeds in [0, 1] where the hint alone is the answer.
        mastered_at: success in [0, 1]; see `estimate`.
        out_of_reach_at: success in [0, 1], below `mastered_at`.

    Returns:
        Without pairs (0 of them) and without a lower bound. The standard error adds both variances,
        sqrt(var(hinted) / n + var(plain) / m); None where one arm has fewer than two returns.
        `MissingRegret` when no unhinted play has a return.
    """
    without = [value for value in plain if value is not None]
    if not without:
        return MissingRegret(f"none of {len(plain)} plays without hint has a return")
    with_hint = filled(hinted)
    arms = (with_hint, without)
    error = None
    if min(map(len, arms)) > 1:
        error = math.sqrt(sum(variance(values) / len(values) for values in arms))
    regret = fmean(with_hint) - fmean(without)
    return RegretEstimate(
        regret=regret,
        standard_error=error,
        paid_regret=regret * (1.0 - leak_share),
        mean_with_hint=fmean(with_hint),
        mean_no_hint=fmean(without),
        num_pairs=0,
        regret_class=classify(
            fmean(map(success, without)),
            fmean(map(success, with_hint)),
            1,
            mastered_at=mastered_at,
            out_of_reach_at=out_of_reach_at,
        ),
        num_played=len(plain),
    )
