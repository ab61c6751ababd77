"""How far the generator's policy was from the learner's, whatever the rule makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spade_async.grpo.correction.tokens import MAX_LOG_RATIO


@dataclass(frozen=True, slots=True)
class RatioStats:
    """How far the generator's policy was from the learner's on a set of tokens."""

    num_tokens: int
    ratio_mean: float
    """Mean of pi / mu before truncation; 1 in expectation when the sampler is honest."""
    ratio_max: float
    max_abs_log_ratio: float
    """Before the clamp."""
    clip_share: float
    """Share of tokens whose weight was truncated at the cap, in [0, 1]."""
    ess: float
    """Effective sample size of the weights used, as a share of the tokens, in (0, 1]."""
    kl_k1: float
    """KL(mu || pi) by mean(log mu - log pi): unbiased, may be negative."""
    kl_k3: float
    """KL(mu || pi) by mean(ratio - 1 - log ratio): unbiased, never negative."""


def ratio_stats(log_ratio: NDArray[np.float32], cap: float) -> RatioStats | None:
    """Figures of a set of tokens; None when there are none.

    Args:
        log_ratio: [N] learner minus generator log-probability per trained token.
        cap: truncation of the weight.
    """
    if log_ratio.size == 0:
        return None
    raw = log_ratio.astype(np.float64)
    clamped = np.clip(raw, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = np.exp(clamped)
    weight = np.minimum(ratio, cap)
    return RatioStats(
        num_tokens=int(raw.size),
        ratio_mean=float(ratio.mean()),
        ratio_max=float(ratio.max()),
        max_abs_log_ratio=float(np.abs(raw).max()),
        clip_share=float((ratio > cap).mean()),
        ess=float(weight.sum() ** 2 / (weight.size * (weight**2).sum())),
        kl_k1=float(-clamped.mean()),
        kl_k3=float((ratio - 1.0 - clamped).mean()),
    )


def stats_by(
    log_ratio: NDArray[np.float32], keys: NDArray[np.int64], cap: float
) -> dict[int, RatioStats]:
    """`ratio_stats` for each distinct key (a role's number, a staleness), keys ascending."""
    found: dict[int, RatioStats] = {}
    for key in np.unique(keys):
        stats = ratio_stats(log_ratio[keys == key], cap)
        if stats is not None:
            found[int(key)] = stats
    return found


def log_ratios(learner_logprobs: Tensor, generator_logprobs: Tensor) -> NDArray[np.float32]:
    """Learner minus generator log-probability as a numpy array, for the figures above."""
    difference = learner_logprobs.detach() - generator_logprobs
    array: NDArray[np.float32] = difference.to(torch.float32).cpu().numpy()
    return array
