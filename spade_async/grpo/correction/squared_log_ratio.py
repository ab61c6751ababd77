"""Squared log-ratio: importance-weighted policy gradient, held to the sampler by a penalty."""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.grpo.correction.tokens import MAX_LOG_RATIO, Terms, Tokens, carried, ratio


@dataclass(frozen=True, slots=True)
class SquaredLogRatio:
    """``L = -rho A + tau (log rho)^2``.

    Bias: token ratios, and the penalty's own gradient ``2 tau log rho * grad log pi``, a pull
    towards the sampler that is there without any advantage. Beyond the clamp of the log-ratio the
    pull stays at its largest.
    Use it: as the regulariser of a run whose policy drifts from its samples.
    Source: Kimi k1.5 (arXiv 2501.12599) has it in its objective; prime-rl (tau 1e-3).
    """

    penalty: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        rho = ratio(tokens.policy, tokens.behaviour)
        far = (tokens.policy - tokens.behaviour).detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        # far is the value; log(carried) is 0 in value with the gradient of log pi.
        squared = (far + carried(tokens.policy) - 1.0) ** 2
        raw = rho.detach()
        return Terms(-rho * tokens.advantages + self.penalty * squared, raw, raw)
