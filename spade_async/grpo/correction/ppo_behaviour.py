"""PPO anchored on the generator's probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from spade_async.grpo.correction.tokens import Terms, Tokens, clipped_surrogate, ratio


@dataclass(frozen=True, slots=True)
class PpoBehaviour:
    """``L = -min(rho A, clip(rho, 1 - e_low, 1 + e_high) A)``.

    Bias: token ratios; no gradient where A > 0 and rho > 1 + e_high or A < 0 and rho < 1 - e_low.
    With A < 0 the weight is not bounded above (see `dual_clip`).
    Use it: small ages; the clip holds the policy near the *sampler*, which is old.
    Source: PPO (arXiv 1707.06347); TRL and verl for asynchronous runs.
    """

    clip_low: float
    clip_high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        rho, advantages = ratio(tokens.policy, tokens.behaviour), tokens.advantages
        low, high = 1.0 - self.clip_low, 1.0 + self.clip_high
        raw = rho.detach()
        is_cut = ((advantages > 0) & (raw > high)) | ((advantages < 0) & (raw < low))
        used = torch.where(is_cut, torch.zeros_like(raw), raw)
        return Terms(-clipped_surrogate(rho, advantages, low, high), raw, used)
