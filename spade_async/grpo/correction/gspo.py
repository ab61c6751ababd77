"""GSPO: one length-normalised ratio per sequence, clipped like PPO's."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from spade_async.grpo.correction.tokens import (
    Terms,
    Tokens,
    bounded_exp,
    carried,
    clipped_surrogate,
    sequence_mean,
)


@dataclass(frozen=True, slots=True)
class Gspo:
    """``L = -min(s A, clip(s, low, high) A)`` with ``s = exp(mean_t log rho_t)`` per sequence.

    Each token carries the gradient ``s * grad log pi_t``.
    Bias: the length-normalised ratio is the T-th root of the true one; where the clip acts the
    whole sequence has no gradient.
    Use it: long sequences and mixtures of experts, where single ratios are noise. Its deviation is
    that of a token divided by sqrt(T), so the bounds must be narrow for long sequences (the source
    has 1 - 3e-4 and 1 + 4e-4); ours are those of a short action.
    Source: GSPO (arXiv 2507.18071), anchored on mu.
    """

    low: float
    high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        log_ratios = (tokens.policy - tokens.behaviour).detach()
        raw = bounded_exp(sequence_mean(log_ratios, tokens.sequences))[tokens.sequences]
        ratios, advantages = raw * carried(tokens.policy), tokens.advantages
        is_cut = ((advantages > 0) & (raw > self.high)) | ((advantages < 0) & (raw < self.low))
        used = torch.where(is_cut, torch.zeros_like(raw), raw)
        return Terms(-clipped_surrogate(ratios, advantages, self.low, self.high), raw, used)
