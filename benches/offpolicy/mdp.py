"""A token MDP small enough to enumerate: tabular softmax policy, one reward per whole sequence."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from spade_async.grpo.correction import Rule, Tokens
from spade_async.grpo.correction.gepo import group_log_means


@dataclass(frozen=True, slots=True)
class Mdp:
    """Sequences over V tokens, ended by token V - 1 or at length H. Y sequences, N tokens in all.

    A state is a prefix; the policy's parameters are logits [states, V]. All sequences stand one
    after the other in the flat arrays, like the trained tokens of a micro-batch.
    """

    num_states: int
    vocab: int
    sequences: Tensor
    """[N] sequence of each token."""
    states: Tensor
    """[N]"""
    actions: Tensor
    """[N]"""
    rewards: Tensor
    """[Y] float64"""

    @classmethod
    def make(cls, horizon: int, vocab: int, seed: int) -> Mdp:
        """All sequences of the horizon, rewards drawn from a standard normal by the seed."""
        prefixes = [
            p for n in range(horizon) for p in itertools.product(range(vocab - 1), repeat=n)
        ]
        number = {prefix: index for index, prefix in enumerate(prefixes)}
        whole = [(*p, vocab - 1) for p in prefixes]
        whole += list(itertools.product(range(vocab - 1), repeat=horizon))
        rows = [
            (y, number[sequence[:t]], token)
            for y, sequence in enumerate(whole)
            for t, token in enumerate(sequence)
        ]
        flat = torch.tensor(rows, dtype=torch.int64)
        generator = torch.Generator().manual_seed(seed)
        rewards = torch.randn(len(whole), dtype=torch.float64, generator=generator)
        return cls(len(prefixes), vocab, flat[:, 0], flat[:, 1], flat[:, 2], rewards)

    @property
    def num_sequences(self) -> int:
        """Y."""
        return self.rewards.numel()

    def token_logprobs(self, logits: Tensor) -> Tensor:
        """[..., N] log-probability of each token of each sequence, from [..., states, V] logits."""
        return torch.log_softmax(logits, -1)[..., self.states, self.actions]

    def sequence_logprobs(self, logits: Tensor) -> Tensor:
        """[..., Y] log-probability of each sequence."""
        tokens = self.token_logprobs(logits)
        zeros = tokens.new_zeros((*tokens.shape[:-1], self.num_sequences))
        return zeros.index_add(-1, self.sequences, tokens)

    def value(self, logits: Tensor) -> Tensor:
        """[...] exact expected reward."""
        return (self.sequence_logprobs(logits).exp() * self.rewards).sum(-1)


def exact_gradient(mdp: Mdp, logits: Tensor) -> Tensor:
    """Gradient of the expected reward by enumeration."""
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(mdp.value(leaf), leaf)
    return gradient


@dataclass(frozen=True, slots=True)
class Groups:
    """Every ordered group of G sequences with its probability under the sampler; M groups."""

    members: Tensor
    """[M, G] sequence numbers."""
    probability: Tensor
    """[M]"""
    advantages: Tensor
    """[M, G]"""
    token_rows: Tensor
    """[K] row of the MDP's flat arrays, for each token of each member of each group."""
    token_places: Tensor
    """[K] member (0 to M * G - 1) each token belongs to."""


def all_groups(
    mdp: Mdp, behaviour: Tensor, size: int, advantage: Callable[[Tensor], Tensor]
) -> Groups:
    """Enumerate groups of a size, sampled by the behaviour logits.

    Args:
        mdp: the world.
        behaviour: [states, V] logits of the sampler.
        size: G.
        advantage: [M, G] rewards -> [M, G] advantages.
    """
    members = torch.cartesian_prod(*[torch.arange(mdp.num_sequences)] * size).reshape(-1, size)
    probability = mdp.sequence_logprobs(behaviour)[members].sum(1).exp()
    flat = members.reshape(-1)
    rows_of = [torch.nonzero(mdp.sequences == y).flatten() for y in range(mdp.num_sequences)]
    token_rows = torch.cat([rows_of[int(y)] for y in flat])
    lengths = torch.tensor([rows_of[int(y)].numel() for y in flat])
    places = torch.repeat_interleave(torch.arange(flat.numel()), lengths)
    return Groups(members, probability, advantage(mdp.rewards[members]), token_rows, places)


def expected_gradient(
    rule: Rule,
    mdp: Mdp,
    groups: Groups,
    *,
    policy: Tensor,
    behaviour: Tensor,
    proximal: Tensor | None = None,
) -> Tensor:
    """Exact expectation of the estimator: mean over a group of the summed token gradients.

    The real rule is called on all tokens of all groups at once; each loss counts with the
    probability of its group.
    """
    leaf = policy.clone().requires_grad_()
    num_groups, size = groups.members.shape
    rows, places = groups.token_rows, groups.token_places
    behaviours = mdp.token_logprobs(behaviour)
    whole = mdp.sequence_logprobs(behaviour)[groups.members.reshape(-1)]
    start = policy if proximal is None else proximal
    tokens = Tokens(
        policy=mdp.token_logprobs(leaf)[rows],
        proximal=mdp.token_logprobs(start)[rows],
        behaviour=behaviours[rows],
        advantages=groups.advantages.reshape(-1)[places],
        sequences=places,
        group_log_means=group_log_means(whole, torch.arange(num_groups).repeat_interleave(size)),
    )
    chances = groups.probability.repeat_interleave(size)[places] / size
    (gradient,) = torch.autograd.grad(-(chances * rule(tokens).losses).sum(), leaf)
    return gradient
