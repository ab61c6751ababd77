"""Masked importance sampling by the geometric mean: the sequence is a gate, the token a weight."""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.grpo.correction.tokens import Terms, Tokens, banded, bounded_exp, sequence_mean


@dataclass(frozen=True, slots=True)
class MisGeometric:
    """``L = -w 1[low <= g <= high] * min(u A, clip(u, ...) A)``, ``g = exp(mean_t log w_t)``.

    Bias: token ratios, and the sequences outside the band.
    Use it: long sequences; the gate does not tighten with length, the token weights are uncut
    inside it.
    Source: the geometric mask of verl and NeMo RL; SkyRL suggests 0.99 to 1.01 for long answers.
    """

    low: float
    high: float
    clip_low: float
    clip_high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        log_weights = (tokens.proximal - tokens.behaviour).detach()
        gate = bounded_exp(sequence_mean(log_weights, tokens.sequences))[tokens.sequences]
        raw = bounded_exp(log_weights)
        return banded(tokens, raw, gate, (self.low, self.high), self.clip_low, self.clip_high)
