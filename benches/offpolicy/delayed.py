"""Learning with samples that are a fixed number of steps old, many replicas at once.

Every replica (an age and a seed) has its own tabular policy. At each step a batch is sampled from
the policy of `age` steps before, advantages are group means as in training, the real rule makes the
losses, plain gradient ascent with a clipped norm makes the step. Nothing but the samples' age
differs between the replicas of one seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from benches.offpolicy.mdp import Mdp
from spade_async.grpo.correction import Rule, Tokens
from spade_async.grpo.correction.gepo import group_log_means


@dataclass(frozen=True, slots=True)
class Setting:
    """Sizes of one problem."""

    horizon: int
    vocab: int
    steps: int
    groups: int
    group_size: int
    lr: float
    noise: float
    """Deviation of the reward around its mean."""
    pull: float
    """Weight of KL(policy || start) in the objective, as learner.kl_to_start; its gradient is
    exact."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Per replica, [R]."""

    score: Tensor
    """(mean value over the last fifth - start) / (best - start)."""
    worst: Tensor
    """The same for the lowest value of the second half."""
    kl: Tensor
    """90th percentile over the steps of the exact KL(sampler || policy) per token, nats."""
    ess: Tensor
    """Median over the steps of ESS/N of the weights used; NaN when all were masked."""


def learn(rule: Rule, passes: int, setting: Setting, ages: Tensor, seeds: Tensor) -> Outcome:
    """Run all replicas to the end.

    Args:
        rule: what is tried.
        passes: gradient steps per batch, each with lr / passes.
        setting: the problem.
        ages: [R] age of each replica's samples, in steps.
        seeds: [R] replicas with one seed share rewards, start and noise.
    """
    worlds = {int(s): Mdp.make(setting.horizon, setting.vocab, int(s)) for s in seeds}
    shape = next(iter(worlds.values()))
    rewards = torch.stack([worlds[int(s)].rewards for s in seeds])
    num_replicas, batch = len(seeds), setting.groups * setting.group_size
    lengths = torch.bincount(shape.sequences, minlength=shape.num_sequences)
    starts = torch.cumsum(lengths, 0) - lengths
    policy = torch.zeros(num_replicas, shape.num_states, shape.vocab, dtype=torch.float64)
    history = [policy]
    values, divergences, sizes = [], [], []
    generators = {s: torch.Generator().manual_seed(1000 + s) for s in worlds}
    for step in range(setting.steps):
        born = [max(0, step - int(age)) for age in ages]
        old = torch.stack([history[at][index] for index, at in enumerate(born)])
        chances = shape.sequence_logprobs(old).exp()
        # The same uniform numbers for every age of a seed: the age is the only difference.
        draws, noises = {}, {}
        for seed, generator in generators.items():
            draws[seed] = torch.rand(batch, dtype=torch.float64, generator=generator)
            noises[seed] = torch.randn(batch, dtype=torch.float64, generator=generator)
        uniform = torch.stack([draws[int(s)] for s in seeds])
        chosen = torch.searchsorted(chances.cumsum(-1), uniform).clamp(max=shape.num_sequences - 1)
        paid = rewards.gather(1, chosen)
        paid = paid + setting.noise * torch.stack([noises[int(s)] for s in seeds])
        grouped = paid.view(num_replicas, setting.groups, setting.group_size)
        advantages = (grouped - grouped.mean(-1, keepdim=True)).reshape(-1)
        flat = chosen.reshape(-1)
        counts = lengths[flat]
        sequences = torch.repeat_interleave(torch.arange(flat.numel()), counts)
        first = torch.cumsum(counts, 0) - counts
        offset = torch.arange(int(counts.sum())) - first[sequences]
        rows, of = starts[flat][sequences] + offset, sequences // batch
        behaviours = shape.token_logprobs(old)
        whole = shape.sequence_logprobs(old).gather(1, chosen).reshape(-1)
        groups = torch.arange(flat.numel()) // setting.group_size
        proximal = shape.token_logprobs(policy)[of, rows]
        for inner in range(passes):
            leaf = policy.clone().requires_grad_()
            tokens = Tokens(
                policy=shape.token_logprobs(leaf)[of, rows],
                proximal=proximal,
                behaviour=behaviours[of, rows],
                advantages=advantages[sequences],
                sequences=sequences,
                group_log_means=group_log_means(whole, groups),
            )
            terms = rule(tokens)
            (gradient,) = torch.autograd.grad(-terms.losses.sum() / batch, leaf)
            gradient = gradient - setting.pull * _pull(shape, policy)
            policy = policy + setting.lr / passes * gradient
            if inner == 0:
                sizes.append(_ess(terms.used, of, num_replicas))
        history.append(policy)
        values.append(_objective(shape, policy, rewards, setting.pull))
        divergences.append(_kl(shape, old, history[step]))
    value = torch.stack(values)
    begin = _objective(shape, history[0], rewards, setting.pull)
    start_logs = shape.sequence_logprobs(history[0])
    best = setting.pull * torch.logsumexp(start_logs + rewards / setting.pull, -1)
    room = best - begin
    return Outcome(
        score=(value[-max(1, setting.steps // 5) :].mean(0) - begin) / room,
        worst=(value[setting.steps // 2 :].min(0).values - begin) / room,
        kl=torch.stack(divergences).quantile(0.9, dim=0),
        ess=torch.stack(sizes).nanmedian(0).values,
    )


def _ess(used: Tensor, of: Tensor, num_replicas: int) -> Tensor:
    """[R] (sum w)^2 / (N sum w^2)."""
    zeros = used.new_zeros(num_replicas)
    total, squares = zeros.index_add(0, of, used), zeros.index_add(0, of, used**2)
    return total**2 / (squares * torch.bincount(of, minlength=num_replicas))


def _kl(shape: Mdp, old: Tensor, new: Tensor) -> Tensor:
    """[R] exact KL per token between the sampler and the policy that trains on its samples."""
    log_old, log_new = shape.sequence_logprobs(old), shape.sequence_logprobs(new)
    chances = log_old.exp()
    lengths = torch.bincount(shape.sequences, minlength=shape.num_sequences)
    return (chances * (log_old - log_new)).sum(-1) / (chances * lengths).sum(-1)


def _to_start(shape: Mdp, policy: Tensor) -> Tensor:
    """[R] KL of whole sequences from the policy to the uniform start."""
    logs = shape.sequence_logprobs(policy)
    return (logs.exp() * (logs - shape.sequence_logprobs(torch.zeros_like(policy)))).sum(-1)


def _pull(shape: Mdp, policy: Tensor) -> Tensor:
    leaf = policy.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(_to_start(shape, leaf).sum(), leaf)
    return gradient


def _objective(shape: Mdp, policy: Tensor, rewards: Tensor, pull: float) -> Tensor:
    """[R] expected reward less the pull: what is maximised; its best value is a log-sum-exp."""
    paid = (shape.sequence_logprobs(policy).exp() * rewards).sum(-1)
    return paid - pull * _to_start(shape, policy)
