"""Truncated REINFORCE: weights at most a little above one."""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.grpo.correction.tokens import Terms, Tokens, bounded_exp, carried


@dataclass(frozen=True, slots=True)
class TruncatedReinforce:
    """``L = -sg(min(rho, C)) A log pi`` with C just above 1.

    Bias: token ratios; all mass above C is cut, so what the policy has learned to prefer since
    the sample is weighed as if it had not.
    Use it: ages of one or two steps in a pipeline, where small variance matters most.
    Source: PipelineRL (arXiv 2509.19128), C = 1 + 0.02.
    """

    cap: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        raw = bounded_exp((tokens.policy - tokens.behaviour).detach())
        used = raw.clamp(max=self.cap)
        return Terms(-used * tokens.advantages * carried(tokens.policy), raw, used)
