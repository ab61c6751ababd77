"""DPPO with a gate on the binary KL of a token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spade_async.grpo.correction.tokens import MAX_LOG_RATIO, Terms, Tokens, bounded_exp, ratio


@dataclass(frozen=True, slots=True)
class DppoKl:
    """``L = -rho A``, but 0 where ``k > delta`` and pi has moved from mu as the advantage asks.

    ``k = mu log(mu / pi) + (1 - mu) log((1 - mu) / (1 - pi))``: the KL of "this token or not".
    Bias: as `dppo_tv`.
    Use it: as `dppo_tv`; the gate closes sooner for tokens near probability 0 or 1.
    Source: DPPO (arXiv 2602.04879), the binary KL gate; SkyRL (delta 0.05).
    """

    delta: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        policy, behaviour = tokens.policy.detach(), tokens.behaviour
        advantages = tokens.advantages
        is_far = binary_kl(behaviour, policy) > self.delta
        moved_on = ((advantages > 0) & (policy > behaviour)) | (
            (advantages < 0) & (policy < behaviour)
        )
        is_cut = is_far & moved_on
        raw = bounded_exp(policy - behaviour)
        used = torch.where(is_cut, torch.zeros_like(raw), raw)
        objective = ratio(tokens.policy, tokens.behaviour) * advantages
        return Terms(torch.where(is_cut, torch.zeros_like(objective), -objective), raw, used)


def binary_kl(log_mu: Tensor, log_pi: Tensor) -> Tensor:
    """[N] KL between "this token or another" under mu and under pi, in nats."""
    this = log_mu.exp() * (log_mu - log_pi).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    log_other_mu, log_other_pi = _log_other(log_mu), _log_other(log_pi)
    other = (log_other_mu - log_other_pi).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return this + log_other_mu.exp() * other


def _log_other(log_probability: Tensor) -> Tensor:
    """``log(1 - p)``; a probability of 1 (or above, by rounding) leaves the least positive rest."""
    rest = -torch.expm1(log_probability)
    return rest.clamp(min=torch.finfo(rest.dtype).tiny).log()
