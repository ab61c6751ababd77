"""What "unbiased" means, by enumeration: exact expectations of estimators under a stale sampler.

Horizon 3, three tokens (one ends the sequence): 15 sequences, 225 groups of two. The exact gradient
comes from enumerating the expected reward; the expectation of an estimator from calling the real
rule on every group; the bias of a rule from the formulas of docs/correction.md, in plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from benches.offpolicy.mdp import Groups, Mdp, all_groups, exact_gradient, expected_gradient
from spade_async.config.correction import CorrectionConfig, parameters
from spade_async.grpo.advantage import group_advantages
from spade_async.grpo.correction import Rule, make_rule
from tests.support.correction_formulas import Sequence_, names, read, value

torch.set_num_threads(1)
FORMULAS = read()
CLIP = 0.2
BASELINE = 0.3
RULES_ALL = sorted(FORMULAS)


@pytest.fixture(scope="module")
def mdp() -> Mdp:
    return Mdp.make(horizon=3, vocab=3, seed=5)


@pytest.fixture(scope="module")
def policy(mdp: Mdp) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(mdp.num_states, mdp.vocab, dtype=torch.float64)


@pytest.fixture(scope="module")
def behaviour(mdp: Mdp, policy: Tensor) -> Tensor:
    """A sampler that is some steps old: log-ratios of tokens up to about 1."""
    torch.manual_seed(1)
    return policy + 0.6 * torch.randn(mdp.num_states, mdp.vocab, dtype=torch.float64)


def fixed(rewards: Tensor) -> Tensor:
    return rewards - BASELINE


def leave_one_out(rewards: Tensor) -> Tensor:
    size = rewards.shape[1]
    return rewards - (rewards.sum(1, keepdim=True) - rewards) / (size - 1)


def group_mean(rewards: Tensor) -> Tensor:
    """The advantages of training, by its own code."""
    rows = [group_advantages(row.tolist(), normalise_std=False) for row in rewards]
    return torch.tensor(rows, dtype=torch.float64)


def group_std(rewards: Tensor) -> Tensor:
    rows = [group_advantages(row.tolist(), normalise_std=True) for row in rewards]
    return torch.tensor(rows, dtype=torch.float64)


def rule_of(name: str, **values: float) -> Rule:
    return make_rule(CorrectionConfig.model_validate({"rule": name, **values}), CLIP, CLIP)


UNTRUNCATED = {"cap": 1e9}


def by_formula(
    weight: Callable[[Sequence_, int], float],
    mdp: Mdp,
    groups: Groups,
    policy: Tensor,
    behaviour: Tensor,
    proximal: Tensor | None = None,
) -> np.ndarray:
    """sum over groups of mu(group) / G * sum over tokens of weight * grad log pi, in numpy.

    grad log pi of a softmax is one-hot minus probabilities, in the row of the state.
    """
    start = policy if proximal is None else proximal
    log_mu, log_old, log_pi = (mdp.token_logprobs(x).tolist() for x in (behaviour, start, policy))
    chances = torch.softmax(policy, -1).numpy()
    whole = mdp.sequence_logprobs(behaviour).exp().numpy()
    of = mdp.sequences.tolist()
    rows = [[i for i, y in enumerate(of) if y == z] for z in range(mdp.num_sequences)]
    found = np.zeros(policy.shape)
    for group, probability, advantages in zip(
        groups.members.tolist(),
        groups.probability.tolist(),
        groups.advantages.tolist(),
        strict=True,
    ):
        q = whole[group]
        for y, advantage in zip(group, advantages, strict=True):
            one = Sequence_(
                [log_mu[i] for i in rows[y]],
                [log_old[i] for i in rows[y]],
                [log_pi[i] for i in rows[y]],
                advantage,
                float(np.log((q**2).sum() / q.sum())),
            )
            for t, i in enumerate(rows[y]):
                state, action = int(mdp.states[i]), int(mdp.actions[i])
                score = -chances[state]
                score[action] += 1.0
                found[state] += probability / len(group) * weight(one, t) * score
    return found


def page_gradient(name: str) -> Callable[[Sequence_, int], float]:
    values = parameters(CorrectionConfig(rule=name))
    return lambda one, t: value(FORMULAS[name]["gradient"], names(one, t, values, CLIP))


def true_weight(one: Sequence_, t: int) -> float:
    return float(np.exp(sum(one.log_pi) - sum(one.log_mu))) * one.advantage


@pytest.mark.parametrize("baseline", [fixed, leave_one_out])
@pytest.mark.parametrize("size", [2, 3])
def test_untruncated_sequence_ratios_with_an_independent_baseline_are_unbiased(
    mdp: Mdp, policy: Tensor, behaviour: Tensor, baseline: Callable[[Tensor], Tensor], size: int
) -> None:
    groups = all_groups(mdp, behaviour, size, baseline)
    found = expected_gradient(
        rule_of("tis_sequence", **UNTRUNCATED), mdp, groups, policy=policy, behaviour=behaviour
    )
    torch.testing.assert_close(found, exact_gradient(mdp, policy), atol=1e-10, rtol=0)


@pytest.mark.parametrize("size", [2, 3])
def test_a_group_mean_with_the_sample_in_it_scales_by_one_less_over_g(
    mdp: Mdp, policy: Tensor, behaviour: Tensor, size: int
) -> None:
    groups = all_groups(mdp, behaviour, size, group_mean)
    found = expected_gradient(
        rule_of("tis_sequence", **UNTRUNCATED), mdp, groups, policy=policy, behaviour=behaviour
    )
    expected = (size - 1) / size * exact_gradient(mdp, policy)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", RULES_ALL)
def test_expectation_of_every_rule_is_the_exact_gradient_plus_its_stated_bias(
    mdp: Mdp, policy: Tensor, behaviour: Tensor, name: str
) -> None:
    groups = all_groups(mdp, behaviour, 1 if name != "gepo" else 2, fixed)
    found = expected_gradient(rule_of(name), mdp, groups, policy=policy, behaviour=behaviour)
    gradient = page_gradient(name)
    bias = by_formula(
        lambda one, t: gradient(one, t) - true_weight(one, t), mdp, groups, policy, behaviour
    )
    exact = exact_gradient(mdp, policy).numpy()
    np.testing.assert_allclose(found.numpy(), exact + bias, atol=1e-6, rtol=0)
    if name == "tis_sequence":  # No sequence reaches the cap at this age.
        assert np.abs(bias).max() < 1e-12
    else:
        assert np.abs(bias).max() > 1e-3


@pytest.mark.parametrize("name", RULES_ALL)
def test_on_policy_every_rule_but_gepo_is_exact(mdp: Mdp, policy: Tensor, name: str) -> None:
    groups = all_groups(mdp, policy, 2, leave_one_out)
    found = expected_gradient(rule_of(name), mdp, groups, policy=policy, behaviour=policy)
    error = float((found - exact_gradient(mdp, policy)).abs().max())
    if name == "gepo":
        assert error > 1e-3
    else:
        assert error < 1e-10


@pytest.mark.parametrize("name", ["tis_token", "tis_sequence", "gepo"])
def test_training_advantages_have_the_bias_of_the_formulas_too(
    mdp: Mdp, policy: Tensor, behaviour: Tensor, name: str
) -> None:
    groups = all_groups(mdp, behaviour, 2, group_mean)
    found = expected_gradient(rule_of(name), mdp, groups, policy=policy, behaviour=behaviour)
    expected = by_formula(page_gradient(name), mdp, groups, policy, behaviour)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6, rtol=0)


def test_dividing_by_the_deviation_is_no_scaled_gradient(
    mdp: Mdp, policy: Tensor, behaviour: Tensor
) -> None:
    groups = all_groups(mdp, behaviour, 3, group_std)
    found = expected_gradient(
        rule_of("tis_sequence", **UNTRUNCATED), mdp, groups, policy=policy, behaviour=behaviour
    )
    expected = by_formula(true_weight, mdp, groups, policy, behaviour)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6, rtol=0)
    exact = exact_gradient(mdp, policy)
    scale = (found * exact).sum() / (exact * exact).sum()
    assert float((found - scale * exact).abs().max()) > 1e-2


def test_truncation_loses_what_the_page_says(mdp: Mdp, policy: Tensor, behaviour: Tensor) -> None:
    # bias of the sequence weight at cap C: - E[(W - C)+ A sum grad log pi]
    cap = 1.5
    groups = all_groups(mdp, behaviour, 1, fixed)
    found = expected_gradient(
        rule_of("tis_sequence", cap=cap), mdp, groups, policy=policy, behaviour=behaviour
    )

    def lost(one: Sequence_, t: int) -> float:
        return -max(np.exp(sum(one.log_pi) - sum(one.log_mu)) - cap, 0.0) * one.advantage

    bias = by_formula(lost, mdp, groups, policy, behaviour)
    np.testing.assert_allclose(
        found.numpy(), exact_gradient(mdp, policy).numpy() + bias, atol=1e-9, rtol=0
    )


def test_decoupled_ppo_differs_in_the_second_pass_and_only_there(
    mdp: Mdp, policy: Tensor, behaviour: Tensor
) -> None:
    groups = all_groups(mdp, behaviour, 2, leave_one_out)
    weighted = rule_of("tis_token", **UNTRUNCATED)
    decoupled, anchored = rule_of("decoupled_ppo"), rule_of("ppo_behaviour")

    first = expected_gradient(decoupled, mdp, groups, policy=policy, behaviour=behaviour)
    same = expected_gradient(weighted, mdp, groups, policy=policy, behaviour=behaviour)
    torch.testing.assert_close(first, same, atol=1e-12, rtol=0)

    moved = policy + 3.0 * first  # The inner step: far enough for the clip to act.
    second = expected_gradient(
        decoupled, mdp, groups, policy=moved, behaviour=behaviour, proximal=policy
    )
    expected = by_formula(page_gradient("decoupled_ppo"), mdp, groups, moved, behaviour, policy)
    np.testing.assert_allclose(second.numpy(), expected, atol=1e-6, rtol=0)
    # Not the weighted policy gradient at the new policy, and not PPO anchored on the sampler.
    for rule, start in ((weighted, moved), (anchored, moved)):
        other = expected_gradient(
            rule, mdp, groups, policy=moved, behaviour=behaviour, proximal=start
        )
        assert float((second - other).abs().max()) > 1e-3
    # Where the proximal policy is the sampler itself, decoupled PPO is PPO anchored on the sampler.
    on_anchor = expected_gradient(
        decoupled, mdp, groups, policy=moved, behaviour=behaviour, proximal=behaviour
    )
    ppo = expected_gradient(anchored, mdp, groups, policy=moved, behaviour=behaviour)
    torch.testing.assert_close(on_anchor, ppo, atol=1e-12, rtol=0)
