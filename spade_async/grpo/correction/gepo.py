"""GEPO: sequence ratios against the group's expected probability, not the sample's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spade_async.grpo.correction.tokens import (
    Terms,
    Tokens,
    bounded_exp,
    carried,
    num_sequences,
    sequence_sum,
)
from spade_async.grpo.samples import TrainSample


@dataclass(frozen=True, slots=True)
class Gepo:
    """``L = -sg(p(y) / E) A log pi`` with ``E = sum_j q_j^2 / sum_j q_j`` over the group.

    p is the learner's and q the generator's probability of the whole sequence; E estimates
    ``E_q[q]`` from the group, so one improbable sample does not get a huge weight.
    Bias: the denominator is not the sample's own probability: the expectation is that of
    ``(q(y) / E) * (p / q) A grad log pi``, which weighs likely samples more. Not unbiased for any
    group size.
    Use it: large ages with prompts shared by the group, short actions. Our agent groups play
    one environment from several seeds: their prompts differ, and E mixes them.
    Source: GEPO (arXiv 2508.17850).
    """

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`. Without groups each sample is its own, and E is its own q."""
        behaviour = sequence_sum(tokens.behaviour, tokens.sequences)
        policy = sequence_sum(tokens.policy.detach(), tokens.sequences)
        means = behaviour if tokens.group_log_means is None else tokens.group_log_means
        means = means[: num_sequences(tokens.sequences)]
        weights = bounded_exp(policy - means)[tokens.sequences]
        losses = -weights * tokens.advantages * carried(tokens.policy)
        return Terms(losses, weights, weights)


def group_log_means(sequence_logprobs: Tensor, groups: Tensor) -> Tensor:
    """[S] ``log(sum_j q_j^2 / sum_j q_j)`` of the group of each sequence.

    Args:
        sequence_logprobs: [S] log q of each sequence of the step, in full.
        groups: [S] group number of each.
    """
    _, index = torch.unique(groups, return_inverse=True)
    count = int(index.max()) + 1 if index.numel() else 0

    def log_sums(logs: Tensor) -> Tensor:
        # Less the largest of each group: whole-sequence probabilities underflow.
        largest = logs.new_full((count,), -torch.inf).scatter_reduce(0, index, logs, "amax")
        sums = logs.new_zeros(count).index_add(0, index, (logs - largest[index]).exp())
        return (largest + sums.log())[index]

    return log_sums(2.0 * sequence_logprobs) - log_sums(sequence_logprobs)


def step_log_means(samples: Sequence[TrainSample]) -> dict[str, float]:
    """Sample id -> log E of its group, over all samples of a step (those without gradient too)."""
    sums, groups = [], []
    for index, sample in enumerate(samples):
        trained = sample.trace.loss_mask.astype(bool)
        sums.append(float(sample.trace.generator_logprobs[trained].sum(dtype="float64")))
        # A sample of no group is a group of its own: its number is below all others.
        groups.append(-1 - index if sample.group is None else sample.group)
    means = group_log_means(torch.tensor(sums, dtype=torch.float64), torch.tensor(groups))
    return {s.sample_id: float(mean) for s, mean in zip(samples, means, strict=True)}
