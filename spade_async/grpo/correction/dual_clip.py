"""Dual clip: PPO anchored on the sampler, with a bound for negative advantages."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from spade_async.grpo.correction.tokens import Terms, Tokens, clipped_surrogate, ratio


@dataclass(frozen=True, slots=True)
class DualClip:
    """``L = -max(P, C A)`` for A < 0 and ``-P`` else, ``P = min(rho A, clip(rho, ...) A)``.

    Bias: that of `ppo_behaviour`, and no gradient where A < 0 and rho > C.
    Use it: instead of `ppo_behaviour` whenever samples are old.
    Source: Ye et al., Mastering complex control in MOBA games (arXiv 1912.09729), C = 3.
    """

    cap: float
    clip_low: float
    clip_high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        rho, advantages = ratio(tokens.policy, tokens.behaviour), tokens.advantages
        low, high = 1.0 - self.clip_low, 1.0 + self.clip_high
        objective = clipped_surrogate(rho, advantages, low, high)
        bounded = torch.maximum(objective, self.cap * advantages)
        raw = rho.detach()
        is_cut = ((advantages > 0) & (raw > high)) | (
            (advantages < 0) & ((raw < low) | (raw > self.cap))
        )
        used = torch.where(is_cut, torch.zeros_like(raw), raw)
        return Terms(-torch.where(advantages < 0, bounded, objective), raw, used)
