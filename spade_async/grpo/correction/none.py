"""No correction: the clipped surrogate anchored on the learner's own recomputation."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from spade_async.grpo.correction.tokens import Terms, Tokens, clipped_surrogate, ratio


@dataclass(frozen=True, slots=True)
class NoCorrection:
    """``L = -min(u A, clip(u, 1 - e_low, 1 + e_high) A)``.

    Bias: the whole importance ratio; old samples are trained as if they were new. With one pass
    u = 1, so the clip never acts and mu does not enter at all.
    Use it: synchronously, or as the thing to compare with; also the only rule for an engine that
    reports no log-probabilities.
    Source: PPO (arXiv 1707.06347) as GRPO uses it.
    """

    clip_low: float
    clip_high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        objective = clipped_surrogate(
            ratio(tokens.policy, tokens.proximal),
            tokens.advantages,
            1.0 - self.clip_low,
            1.0 + self.clip_high,
        )
        ones = torch.ones_like(tokens.proximal)
        return Terms(-objective, ones, ones)
