"""Truncated importance sampling per sequence: the only unbiased one when nothing is cut."""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.grpo.correction.tokens import (
    Terms,
    Tokens,
    bounded_exp,
    proximal_objective,
    sequence_sum,
)


@dataclass(frozen=True, slots=True)
class TisSequence:
    """``L = -min(W, C) * min(u A, clip(u, ...) A)`` with ``W = prod_t w_t`` over the sequence.

    Bias: none in the first pass when no W reaches C and the baseline does not depend on the sample;
    else ``E[(W - C)+ A grad log pi]``.
    Use it: short actions only. The effective sample size falls like ``exp(-T s^2)`` with T tokens
    of log-ratio deviation s.
    Source: importance sampling; SkyRL and verl offer it with C 5 and 2.
    """

    cap: float
    clip_low: float
    clip_high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        log_weights = (tokens.proximal - tokens.behaviour).detach()
        raw = bounded_exp(sequence_sum(log_weights, tokens.sequences))[tokens.sequences]
        used = raw.clamp(max=self.cap)
        objective = proximal_objective(tokens, self.clip_low, self.clip_high)
        return Terms(-used * objective, raw, used)
