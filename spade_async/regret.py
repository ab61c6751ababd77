"""Hint-based regret of one environment: the only place where it is computed (step 6).

Both arms are played on the same seeds. A pair with a missing side leaves the estimate; nothing is
ever filled in. What the designer is paid from it is `designer.reward`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from spade_async.types import MissingRegret, RegretClass, RegretEstimate


def estimate(
    pairs: Sequence[tuple[float | None, float | None]],
    *,
    leak_share: float,
    mastered_at: float,
    out_of_reach_at: float,
) -> RegretEstimate | MissingRegret:
    """Mean over complete pairs of return with hint minus return without.

    The class goes by mean success, the return clamped to [0, 1]: mastered when the success without
    hint is at least `mastered_at`; else out of reach when the success with hint is at most
    `out_of_reach_at`; else frontier.

    Args:
        pairs: per seed (return with hint, return without); None where the episode is missing.
        leak_share: share of seeds in [0, 1] where the hint alone is the answer.
        mastered_at: success in [0, 1].
        out_of_reach_at: success in [0, 1], below `mastered_at`.

    Returns:
        The estimate. `paid_regret` is regret * (1 - leak_share) with the sign kept: a hint that
        harms is a worse hint, and a floor at 0 would hide it. Standard error: std over pair
        differences (ddof 1) / sqrt(pairs), None for a single pair. `MissingRegret` when no pair is
        complete.

    Raises:
        ValueError: a return that is not finite, or a leak share outside [0, 1].
    """
    if not 0.0 <= leak_share <= 1.0:
        raise ValueError(f"leak_share={leak_share}: must be within [0, 1]")
    complete = [
        (hinted, plain) for hinted, plain in pairs if hinted is not None and plain is not None
    ]
    if not complete:
        return MissingRegret(f"none of {len(pairs)} pairs has both episodes")
    if not all(math.isfinite(value) for pair in complete for value in pair):
        raise ValueError("a return is not finite: it must be rejected where the reward is read")
    differences = [hinted - plain for hinted, plain in complete]
    regret = fmean(differences)
    num_pairs = len(complete)
    return RegretEstimate(
        regret=regret,
        standard_error=stdev(differences) / math.sqrt(num_pairs) if num_pairs > 1 else None,
        paid_regret=regret * (1.0 - leak_share),
        mean_with_hint=fmean(hinted for hinted, _ in complete),
        mean_no_hint=fmean(plain for _, plain in complete),
        num_pairs=num_pairs,
        regret_class=_classify(complete, mastered_at, out_of_reach_at),
    )


def _classify(
    complete: Sequence[tuple[float, float]], mastered_at: float, out_of_reach_at: float
) -> RegretClass:
    if fmean(_success(plain) for _, plain in complete) >= mastered_at:
        return RegretClass.MASTERED
    if fmean(_success(hinted) for hinted, _ in complete) <= out_of_reach_at:
        return RegretClass.OUT_OF_REACH
    return RegretClass.FRONTIER


def _success(episode_return: float) -> float:
    return min(1.0, max(0.0, episode_return))
