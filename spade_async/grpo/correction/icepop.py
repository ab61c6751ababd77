"""IcePop: token weights inside a band, nothing outside."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from spade_async.grpo.correction.tokens import (
    Terms,
    Tokens,
    bounded_exp,
    clipped_surrogate,
    ratio,
)


@dataclass(frozen=True, slots=True)
class IcePop:
    """``L = -w 1[low <= w <= high] * min(u A, clip(u, ...) A)``.

    Bias: token ratios, and all that lies outside the band: ``E[w 1[outside] A grad log pi]``.
    Use it: against outliers of a mismatched engine. With age it drops more and more of the signal;
    a token that the learner has made much likelier (w > high) is dropped although it is the best.
    Source: Every Step Evolves (arXiv 2510.18855); OpenRLHF's band 0.5 to 5.
    """

    low: float
    high: float
    clip_low: float
    clip_high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        raw = bounded_exp((tokens.proximal - tokens.behaviour).detach())
        is_kept = (raw >= self.low) & (raw <= self.high)
        used = torch.where(is_kept, raw, torch.zeros_like(raw))
        objective = clipped_surrogate(
            ratio(tokens.policy, tokens.proximal),
            tokens.advantages,
            1.0 - self.clip_low,
            1.0 + self.clip_high,
        )
        losses = torch.where(is_kept, -raw * objective, torch.zeros_like(objective))
        return Terms(losses, raw, used)
