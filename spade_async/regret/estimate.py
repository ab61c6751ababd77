"""The estimate of one environment's regret: the only place where it is computed (step 6).

Both arms are played on the same seeds. A pair with a missing side leaves the estimate; nothing is
ever filled in. What the designer is paid from it is `designer.rewards`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spade_async.regret.confidence import lower_bound
from spade_async.regret.early import EarlyClass, Pair, classify, success
from spade_async.regret.stopped import unbiased_means
from spade_async.types import MissingRegret, RegretEstimate

HIGHEST_RETURN = 1.0
"""Of the contract; the lowest is -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pay:
    """What the designer is paid from: `regret.pay` and what belongs to it."""

    is_lower: bool = False
    """The lower confidence bound instead of the mean."""
    confidence: float = 0.8
    lowest_return: float = -1.0
    """Lowest return that an environment gives, as the user states it."""


def estimate(
    pairs: Sequence[Pair],
    *,
    leak_share: float,
    mastered_at: float,
    out_of_reach_at: float,
    early: EarlyClass | None = None,
    pay: Pay | None = None,
) -> RegretEstimate | MissingRegret:
    """Mean over complete pairs of return with hint minus return without.

    The class goes by mean success, the return clamped to [0, 1]: mastered when the success without
    hint is at least `mastered_at`; else out of reach when the success with hint is at most
    `out_of_reach_at`; else frontier. When `early` stopped the pairs, it is what `early` said.

    Args:
        pairs: per played seed (return with hint, return without), in the order of play; None where
            the episode is missing.
        leak_share: share of seeds in [0, 1] where the hint alone is the answer.
        mastered_at: success in [0, 1].
        out_of_reach_at: success in [0, 1], below `mastered_at`.
        early: the rule that decided how many pairs were played; None: their number was fixed.
        pay: default: the mean, and a bound at 80 % for the record.

    Returns:
        The estimate; its means are unbiased also when `early` stopped the pairs (`stopped.py`).
        `paid_regret` is regret * (1 - leak_share) with the sign kept: a hint that harms is a worse
        hint, and a floor at 0 would hide it. Paid by the lower bound, what the bound lies below the
        regret is taken off that: a leak must not make the doubt smaller. Without a rule the
        standard error is std over pair differences (ddof 1) / sqrt(pairs); None for a single pair.
        `MissingRegret` when no pair is complete.

    Raises:
        ValueError: a return that is not finite, or a leak share outside [0, 1].
    """
    if not 0.0 <= leak_share <= 1.0:
        raise ValueError(f"leak_share={leak_share}: must be within [0, 1]")
    pay = pay or Pay()
    complete = [
        (hinted, plain) for hinted, plain in pairs if hinted is not None and plain is not None
    ]
    if not complete:
        return MissingRegret(f"none of {len(pairs)} pairs has both episodes")
    if not all(math.isfinite(value) for pair in complete for value in pair):
        raise ValueError("a return is not finite: it must be rejected where the reward is read")
    means = unbiased_means(pairs, early)
    regret = means.hinted - means.plain
    lower = _lower(complete, pay)
    stopped = early.look(pairs) if early is not None else None
    doubt = max(0.0, regret - lower) if pay.is_lower else 0.0
    return RegretEstimate(
        regret=regret,
        standard_error=means.standard_error,
        paid_regret=regret * (1.0 - leak_share) - doubt,
        mean_with_hint=means.hinted,
        mean_no_hint=means.plain,
        num_pairs=len(complete),
        regret_class=stopped
        or classify(
            math.fsum(success(plain) for _, plain in complete),
            math.fsum(success(hinted) for hinted, _ in complete),
            len(complete),
            mastered_at=mastered_at,
            out_of_reach_at=out_of_reach_at,
        ),
        lower_bound=lower,
        num_played=len(pairs),
        is_stopped=stopped is not None,
    )


def _lower(complete: Sequence[tuple[float, float]], pay: Pay) -> float:
    """Lower bound of the regret; over the contract's range if a return is below the stated one."""
    lowest = min(min(hinted, plain) for hinted, plain in complete)
    span = HIGHEST_RETURN - (pay.lowest_return if lowest >= pay.lowest_return else -HIGHEST_RETURN)
    differences = [hinted - plain for hinted, plain in complete]
    return lower_bound(differences, confidence=pay.confidence, lowest=-span, highest=span)
