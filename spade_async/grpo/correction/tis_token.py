"""Truncated importance sampling per token: the default."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from spade_async.grpo.correction.tokens import Terms, Tokens, bounded_exp, proximal_objective


@dataclass(frozen=True, slots=True)
class TisToken:
    """``L = -min(w, C) * min(u A, clip(u, 1 - e_low, 1 + e_high) A)`` with ``w = pi_old / mu``.

    Bias: token ratios leave out the ratios of the other tokens of the sequence, and the cap cuts
    at most ``E[(w - C)+]``. Variance is bounded by C.
    Use it: the default, for ages of a few steps and for mismatch between engine and learner.
    Source: truncated importance sampling (Ionides 2008) as in verl, slime and SkyRL.
    """

    cap: float
    clip_low: float
    clip_high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        raw = bounded_exp((tokens.proximal - tokens.behaviour).detach())
        used = raw.clamp(max=self.cap)
        objective = proximal_objective(tokens, self.clip_low, self.clip_high)
        return Terms(-used * objective, raw, used)


def truncated_weights(learner_logprobs: Tensor, generator_logprobs: Tensor, cap: float) -> Tensor:
    """Token weights ``min(exp(clamp(learner - generator)), cap)``, without gradient.

    Args:
        learner_logprobs: [N] log-probabilities at the start of the update, after temperature.
        generator_logprobs: [N] as reported when the tokens were sampled, after temperature.
        cap: largest weight.
    """
    return bounded_exp((learner_logprobs - generator_logprobs).detach()).clamp(max=cap)
