"""What a rule did to the tokens of a step: the same figures for every rule.

Everything is read off the rule's output and its gradient, so no rule can forget a figure. The
gradient here is that of the summed token losses with respect to each token's log-probability: what
the correction controls; how long the gradient of the log-probability itself is, is the model's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spade_async.grpo.correction.tokens import MAX_LOG_RATIO

AGE_BINS: tuple[tuple[int, int, str], ...] = (
    (0, 0, "0"),
    (1, 1, "1"),
    (2, 2, "2"),
    (3, 4, "3-4"),
    (5, 8, "5-8"),
    (9, 16, "9-16"),
    (17, 1 << 40, "17+"),
)
"""First age, last age, name of the bin."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """The computed tokens of a step, one column each, [N]."""

    log_ratio: Floats
    """Learner minus generator; NaN without the generator's log-probability."""
    raw: Floats
    """Weight before clamping and masking."""
    used: Floats
    """Weight after them."""
    gradient: Floats
    """d loss / d log-probability."""
    advantages: Floats
    ages: NDArray[np.int64]


def report(tokens: TokenColumns) -> dict[str, float]:
    """Metrics of docs/metrics.md; a figure that does not exist is absent.

    Example: weights before clamping 1 and 4, cap 2: truncated_mass = 2/5, clip_share = 1/2,
    ess = (1 + 2)^2 / (2 (1 + 4)) = .9.
    """
    found: dict[str, float] = {}
    raw, used = tokens.raw, tokens.used
    if raw.size == 0:
        return found
    found["learner/clip_share"] = float((used != raw).mean())
    found["learner/weight_mean_raw"] = float(raw.mean())
    found["learner/weight_mean"] = float(used.mean())
    if raw.sum() > 0:
        found["learner/truncated_mass"] = float(np.maximum(raw - used, 0.0).sum() / raw.sum())
    squares = float((used**2).sum())
    if squares > 0:
        found["learner/ess"] = float(used.sum() ** 2 / (used.size * squares))
    is_silent = tokens.gradient == 0.0
    for name, chosen in (("positive", tokens.advantages > 0), ("negative", tokens.advantages < 0)):
        if chosen.any():
            found[f"learner/masked_share_{name}"] = float(is_silent[chosen].mean())
    size = np.abs(tokens.gradient)
    if size.sum() > 0:
        found["learner/stale_gradient_share"] = float(size[tokens.ages > 0].sum() / size.sum())
    return found | kl_by_age(tokens.log_ratio, tokens.ages)


def kl_by_age(log_ratio: Floats, ages: NDArray[np.int64]) -> dict[str, float]:
    """KL(generator || learner) per token in each age bin that has tokens, by k3 (never < 0)."""
    found = {}
    is_known = np.isfinite(log_ratio)
    for first, last, name in AGE_BINS:
        chosen = is_known & (ages >= first) & (ages <= last)
        if chosen.any():
            clamped = np.clip(log_ratio[chosen], -MAX_LOG_RATIO, MAX_LOG_RATIO)
            found[f"learner/kl_age/{name}"] = float((np.exp(clamped) - 1.0 - clamped).mean())
    return found


def all_masked(tokens: TokenColumns) -> bool:
    """Whether there were advantages, and the rule let none of them through."""
    return bool((tokens.advantages != 0).any() and (tokens.gradient == 0.0).all())
