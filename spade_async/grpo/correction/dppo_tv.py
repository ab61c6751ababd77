"""DPPO with a gate on the difference of probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from spade_async.grpo.correction.tokens import Terms, Tokens, bounded_exp, ratio


@dataclass(frozen=True, slots=True)
class DppoTv:
    """``L = -rho A``, but 0 where ``A > 0 and pi - mu > delta`` or ``A < 0 and pi - mu < -delta``.

    Bias: token ratios, and the tokens that have moved by more than delta in the direction that the
    advantage asks for.
    Use it: where rare tokens are many: a ratio of 10 at mu = 0.001 is no reason to stop learning.
    Source: DPPO (arXiv 2602.04879), the total-variation gate; prime-rl's default (delta 0.2).
    """

    delta: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        moved = tokens.policy.detach().exp() - tokens.behaviour.exp()
        advantages = tokens.advantages
        is_cut = ((advantages > 0) & (moved > self.delta)) | (
            (advantages < 0) & (moved < -self.delta)
        )
        raw = bounded_exp((tokens.policy - tokens.behaviour).detach())
        used = torch.where(is_cut, torch.zeros_like(raw), raw)
        objective = ratio(tokens.policy, tokens.behaviour) * advantages
        return Terms(torch.where(is_cut, torch.zeros_like(objective), -objective), raw, used)
