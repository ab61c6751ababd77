"""Masked importance sampling by the product: a sequence keeps its true weight, or has none."""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.grpo.correction.tokens import Terms, Tokens, banded, bounded_exp, sequence_sum


@dataclass(frozen=True, slots=True)
class MisProduct:
    """``L = -W 1[low <= W <= high] * min(u A, clip(u, ...) A)`` with ``W = prod_t w_t``.

    Bias: what lies outside the band, ``E[W 1[outside] A grad log pi]``; nothing else.
    Use it: short actions. With T tokens the log of W spreads like sqrt(T), so long sequences are
    all dropped sooner or later, and the batch is skipped by name.
    Source: TRL's sequence mask (upper end 3), SkyRL (0.5 to 2).
    """

    low: float
    high: float
    clip_low: float
    clip_high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        log_weights = (tokens.proximal - tokens.behaviour).detach()
        raw = bounded_exp(sequence_sum(log_weights, tokens.sequences))[tokens.sequences]
        return banded(tokens, raw, raw, (self.low, self.high), self.clip_low, self.clip_high)
