"""Off-policy sequence mask: bad samples that the policy has already left are not pushed further."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from spade_async.grpo.correction.tokens import (
    Terms,
    Tokens,
    clipped_surrogate,
    ratio,
    sequence_mean,
)


@dataclass(frozen=True, slots=True)
class Opsm:
    """``L = -M min(rho A, clip(rho, 1 - e_low, 1 + e_high) A)``.

    M is 0 for a sequence with A < 0 and ``mean_t(log mu - log pi_old) > delta``, else 1.
    Bias: that of `ppo_behaviour`, and the negative samples that are far off-policy.
    Use it: old samples with many failures among them: the policy already avoids those.
    Source: DeepSeek-V3.2 (arXiv 2512.02556); slime has delta 1e-4, ours allows for age.
    """

    delta: float
    clip_low: float
    clip_high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        rho, advantages = ratio(tokens.policy, tokens.behaviour), tokens.advantages
        low, high = 1.0 - self.clip_low, 1.0 + self.clip_high
        left = sequence_mean((tokens.behaviour - tokens.proximal).detach(), tokens.sequences)
        is_masked = (advantages < 0) & (left[tokens.sequences] > self.delta)
        raw = rho.detach()
        is_cut = ((advantages > 0) & (raw > high)) | ((advantages < 0) & (raw < low)) | is_masked
        used = torch.where(is_cut, torch.zeros_like(raw), raw)
        objective = clipped_surrogate(rho, advantages, low, high)
        return Terms(torch.where(is_masked, torch.zeros_like(objective), -objective), raw, used)
