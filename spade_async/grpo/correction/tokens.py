"""What every rule is given and gives back, and the ratios they share.

Notation of docs/correction.md: mu is the policy that sampled the token (as the generator reported
it), pi_old the learner's at the start of the update, pi the one that is differentiated,
``w = pi_old / mu``, ``u = pi / pi_old``, ``rho = pi / mu``. In the first pass over a batch pi_old
is pi, so u is 1 in value and rho is w.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Clamp of a log-ratio before `exp` (verl's choice; exp(20) is about 4.9e8)."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The trained tokens of some whole sequences. N = tokens, S = sequences.

    All log-probabilities are at the temperature that sampled, on both sides. Only trained tokens
    are here, selected by index: nothing is multiplied by a mask.
    """

    policy: Tensor
    """[N] log pi, with gradient."""
    proximal: Tensor
    """[N] log pi_old, without gradient."""
    behaviour: Tensor
    """[N] log mu, without gradient; NaN where the generator gave none (rule "none" only)."""
    advantages: Tensor
    """[N]"""
    sequences: Tensor
    """[N] which sequence a token belongs to, from 0."""
    group_log_means: Tensor | None = None
    """[S] log of GEPO's expected probability of the group (`gepo.group_log_means`)."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a rule makes of the tokens."""

    losses: Tensor
    """[N] token losses with gradient, to be summed with the step's denominators."""
    raw: Tensor
    """[N] importance weight before clamping and masking, without gradient."""
    used: Tensor
    """[N] importance weight that multiplies the advantage; 0 where a gate dropped the token."""


class Rule(Protocol):
    """One importance correction. A frozen record of its parameters, called with tokens.

    Whatever the log-ratios (finite log-probabilities are the caller's duty), losses and gradients
    are finite: log-ratios are clamped before `exp` and selection is by `torch.where`.
    """

    def __call__(self, tokens: Tokens) -> Terms:
        """Losses and weights of the tokens; empty tensors for no tokens."""
        ...


def bounded_exp(log_ratio: Tensor) -> Tensor:
    """``exp`` of a log-ratio clamped to +-`MAX_LOG_RATIO`."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def carried(policy: Tensor) -> Tensor:
    """``pi / stop_gradient(pi)``: 1 in value, the gradient of the log-probability."""
    return (policy - policy.detach()).exp()


def ratio(policy: Tensor, anchor: Tensor) -> Tensor:
    """``pi / anchor`` with its gradient ``ratio * grad log pi``, the value bounded by the clamp.

    The clamp stands on the value alone: a token far outside keeps the gradient of its bounded
    ratio, as the weights without gradient do.
    """
    return bounded_exp((policy - anchor).detach()) * carried(policy)


def num_sequences(sequences: Tensor) -> int:
    """Sequences that the tokens name."""
    return int(sequences.max()) + 1 if sequences.numel() else 0


def sequence_sum(values: Tensor, sequences: Tensor) -> Tensor:
    """[S] sum of the tokens of each sequence; 0 for a number without tokens."""
    return values.new_zeros(num_sequences(sequences)).index_add(0, sequences, values)


def sequence_mean(values: Tensor, sequences: Tensor) -> Tensor:
    """[S] mean over the tokens of each sequence; 0 for a number without tokens."""
    lengths = sequence_sum(torch.ones_like(values), sequences)
    return sequence_sum(values, sequences) / lengths.clamp(min=1.0)


def clipped_surrogate(ratios: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """``min(r A, clip(r, low, high) A)``: PPO's objective per token, to be maximised."""
    return torch.minimum(ratios * advantages, ratios.clamp(low, high) * advantages)


def proximal_objective(tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """`clipped_surrogate` of the ratio to the proximal policy.

    Args:
        tokens: the batch.
        clip_low: how far below 1 the ratio counts.
        clip_high: how far above.
    """
    ratios = ratio(tokens.policy, tokens.proximal)
    return clipped_surrogate(ratios, tokens.advantages, 1.0 - clip_low, 1.0 + clip_high)


def banded(
    tokens: Tokens, weights: Tensor, gate: Tensor, band: tuple[float, float], clip_low: float,
    clip_high: float,
) -> Terms:  # fmt: skip
    """PPO's clipped surrogate times `weights` where `gate` lies in the band, nothing outside.

    Args:
        tokens: the batch.
        weights: [N] importance weights, without gradient.
        gate: [N] what is held against the band, ends included.
        band: lowest and highest value that is kept.
        clip_low: see `proximal_objective`.
        clip_high: see there.
    """
    is_kept = (gate >= band[0]) & (gate <= band[1])
    objective = proximal_objective(tokens, clip_low, clip_high)
    losses = torch.where(is_kept, -weights * objective, torch.zeros_like(objective))
    return Terms(losses, weights, torch.where(is_kept, weights, torch.zeros_like(weights)))
