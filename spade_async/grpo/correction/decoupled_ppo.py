"""Decoupled PPO: the clip holds to the learner's start of the update, the weight to the sampler."""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.grpo.correction.tokens import Terms, Tokens, bounded_exp, proximal_objective


@dataclass(frozen=True, slots=True)
class DecoupledPpo:
    """``L = -w * min(u A, clip(u, 1 - e_low, 1 + e_high) A)`` with ``w = pi_old / mu`` uncut.

    Bias: token ratios, and from the second pass on the clip. In the first pass u = 1: it is then a
    policy gradient with weight w, which is why one pass is refused.
    Use it: several passes over old batches. No cap: the weight is bounded by the clamp alone.
    Source: Batch size-invariance for policy optimization (arXiv 2110.00641); AReaL
    (arXiv 2505.24298).
    """

    clip_low: float
    clip_high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        weights = bounded_exp((tokens.proximal - tokens.behaviour).detach())
        objective = proximal_objective(tokens, self.clip_low, self.clip_high)
        return Terms(-weights * objective, weights, weights)
