"""GAE: closed forms, the formulas of docs/correction.md, its bias by enumeration; return scales."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import Tensor

from benches.offpolicy.mdp import Mdp, exact_gradient
from spade_async.config.correction import CorrectionConfig
from spade_async.grpo.correction import Tokens, make_rule
from spade_async.grpo.gae import ReturnScale, generalised_advantages, normalised
from spade_async.learner.critic import value_loss
from tests.support.correction_formulas import PAGE, value

torch.set_num_threads(1)
VALUES = np.array([0.3, -0.7, 1.1, 0.2])


def page() -> dict[str, str]:
    """Name -> expression of the page's critic block."""
    (block,) = re.findall(r"```critic\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line.split("=", 1) for line in block.strip().splitlines()]
    return {name.strip(): text.strip() for name, text in lines}


def clip(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def test_lambda_one_is_the_discounted_return_less_the_value() -> None:
    gamma = 0.9
    found = generalised_advantages(VALUES, 2.0, gamma, 1.0)
    left = np.arange(len(VALUES))[::-1]
    np.testing.assert_allclose(found, gamma**left * 2.0 - VALUES, atol=1e-12)


def test_lambda_zero_is_the_one_step_difference() -> None:
    found = generalised_advantages(VALUES, 2.0, 0.9, 0.0)
    expected = [0.9 * -0.7 - 0.3, 0.9 * 1.1 + 0.7, 0.9 * 0.2 - 1.1, 2.0 - 0.2]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_single_token_has_its_return_less_its_value() -> None:
    assert generalised_advantages(np.array([0.25]), -1.0, 0.9, 0.5).tolist() == [-1.25]


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(1.0, 0.95), (0.9, 0.5), (0.5, 0.0)])
def test_advantages_are_those_of_the_page(gamma: float, gae_lambda: float) -> None:
    formulas, found = page(), generalised_advantages(VALUES, 2.0, gamma, gae_lambda)
    coming = 0.0
    for t in range(len(VALUES) - 1, -1, -1):
        is_last = t == len(VALUES) - 1
        names = {
            "r": 2.0 if is_last else 0.0, "V": VALUES[t], "gamma": gamma, "lam": gae_lambda,
            "V_next": 0.0 if is_last else VALUES[t + 1], "A_next": coming,
        }  # fmt: skip
        names["delta"] = value(formulas["delta"], names)
        coming = value(formulas["advantage"], names)
        assert found[t] == pytest.approx(coming, abs=1e-12)


def test_scaling_and_normalising_are_those_of_the_page() -> None:
    formulas = page()
    scale = ReturnScale().seen(np.array([0.0, 1.0, 1.0, 5.0]))
    names = {"m": scale.mean, "s": scale.deviation, "c": 1.2, "clip": clip}
    for single in (-9.0, 0.5, 1.75, 9.0):
        expected = value(formulas["scaled"], {**names, "R": single})
        assert scale.scaled(single, 1.2, normalise=True) == pytest.approx(expected)
    advantages = np.array([1.0, -2.0, 0.5])
    for one, found in zip(advantages, normalised(advantages), strict=True):
        names = {"advantage": one, "mean_A": advantages.mean(), "dev_A": advantages.std()}
        assert found == pytest.approx(value(formulas["used"], names))


def test_the_value_loss_is_that_of_the_page() -> None:
    text = page()["value_loss"]
    old, target = torch.tensor([0.0] * 7), torch.tensor([1.0] * 4 + [-1.0] * 3)
    new = torch.tensor([-0.5, 0.1, 0.3, 2.0, 0.5, -0.1, -0.4])
    found = value_loss(new, old, target, 0.2).tolist()
    names = {"e_v": 0.2, "clip": clip, "max": max}
    for v, V, t, loss in zip(new.tolist(), old.tolist(), target.tolist(), found, strict=True):
        assert loss == pytest.approx(value(text, {**names, "v": v, "V": V, "target": t}), abs=1e-6)
    unclipped = value_loss(new, old, target, 0.0)
    torch.testing.assert_close(unclipped, 0.5 * (new - target) ** 2)


def test_a_value_that_ran_ahead_of_its_clip_has_no_gradient() -> None:
    new = torch.tensor([0.5, 0.1, -0.5], requires_grad=True)
    value_loss(new, torch.zeros(3), torch.ones(3), 0.2).sum().backward()
    assert new.grad is not None
    assert new.grad[0] == 0.0  # Moved by more than the clip, towards the target.
    assert new.grad[1] == pytest.approx(-0.9)
    assert new.grad[2] == pytest.approx(-1.5)  # Moved away: it is drawn back.


def test_equal_values_are_centred_and_not_divided() -> None:
    assert normalised(np.array([3.0, 3.0])).tolist() == [0.0, 0.0]
    scale = ReturnScale().seen(np.array([2.0, 2.0]))
    assert (scale.mean, scale.deviation) == (2.0, 1.0)
    assert scale.scaled(2.0, 5.0, normalise=True) == 0.0


def test_a_running_scale_is_that_of_all_returns_at_once() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(3.0, 2.0, n) for n in (1, 5, 0, 17)]
    scale = ReturnScale()
    for part in parts:
        scale = scale.seen(part)
    whole = np.concatenate(parts)
    assert scale.count == 23
    assert scale.mean == pytest.approx(whole.mean())
    assert scale.deviation == pytest.approx(whole.std())


# The bias, by enumeration -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def mdp() -> Mdp:
    return Mdp.make(horizon=3, vocab=3, seed=5)


@pytest.fixture(scope="module")
def policy(mdp: Mdp) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(mdp.num_states, mdp.vocab, dtype=torch.float64)


def exact_values(mdp: Mdp, policy: Tensor) -> Tensor:
    """[states] expected reward of the sequences that pass through a state."""
    chances = mdp.sequence_logprobs(policy).exp()
    mass, gain = (policy.new_zeros(mdp.num_states) for _ in range(2))
    mass.index_add_(0, mdp.states, chances[mdp.sequences])
    gain.index_add_(0, mdp.states, (chances * mdp.rewards)[mdp.sequences])
    return gain / mass


def by_gae(mdp: Mdp, values: Tensor, gae_lambda: float) -> Tensor:
    """[N] advantages of the tokens of every sequence, by the learner's code."""
    found = torch.empty(len(mdp.states), dtype=torch.float64)
    for y in range(mdp.num_sequences):
        rows = torch.nonzero(mdp.sequences == y).flatten()
        of_states = values[mdp.states[rows]].numpy()
        found[rows] = torch.from_numpy(
            generalised_advantages(of_states, float(mdp.rewards[y]), 1.0, gae_lambda)
        )
    return found


def expected(mdp: Mdp, policy: Tensor, advantages: Tensor) -> Tensor:
    """Exact expectation of the policy gradient with these advantages, by the real rule."""
    leaf = policy.clone().requires_grad_()
    start = mdp.token_logprobs(policy)
    tokens = Tokens(mdp.token_logprobs(leaf), start, start, advantages, mdp.sequences)
    losses = make_rule(CorrectionConfig(rule="none"))(tokens).losses
    chances = mdp.sequence_logprobs(policy).exp()[mdp.sequences]
    (gradient,) = torch.autograd.grad(-(chances * losses).sum(), leaf)
    return gradient


def stated_bias(mdp: Mdp, policy: Tensor, errors: Tensor, gae_lambda: float) -> Tensor:
    """The page's formula: errors of the states to come, in plain loops."""
    advantages = torch.zeros(len(mdp.states), dtype=torch.float64)
    for y in range(mdp.num_sequences):
        rows = torch.nonzero(mdp.sequences == y).flatten().tolist()
        for t, row in enumerate(rows):
            for later in range(1, len(rows) - t):
                error = float(errors[mdp.states[rows[t + later]]])
                advantages[row] += (1 - gae_lambda) * gae_lambda ** (later - 1) * error
    return expected(mdp, policy, advantages)


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 0.95, 1.0])
def test_the_bias_is_that_of_the_page(mdp: Mdp, policy: Tensor, gae_lambda: float) -> None:
    torch.manual_seed(3)
    errors = torch.randn(mdp.num_states, dtype=torch.float64)
    values = exact_values(mdp, policy) + errors
    found = expected(mdp, policy, by_gae(mdp, values, gae_lambda))
    bias = stated_bias(mdp, policy, errors, gae_lambda)
    torch.testing.assert_close(found, exact_gradient(mdp, policy) + bias, atol=1e-10, rtol=0)
    if gae_lambda < 1.0:
        assert float(bias.abs().max()) > 1e-3
    else:
        assert float(bias.abs().max()) == 0.0


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 1.0])
def test_exact_values_have_no_bias_at_any_lambda(
    mdp: Mdp, policy: Tensor, gae_lambda: float
) -> None:
    found = expected(mdp, policy, by_gae(mdp, exact_values(mdp, policy), gae_lambda))
    torch.testing.assert_close(found, exact_gradient(mdp, policy), atol=1e-10, rtol=0)


def test_a_smaller_lambda_has_less_variance_with_exact_values(mdp: Mdp, policy: Tensor) -> None:
    chances = mdp.sequence_logprobs(policy).exp()[mdp.sequences]
    values = exact_values(mdp, policy)
    spread = [float((chances * by_gae(mdp, values, lam) ** 2).sum()) for lam in (0.0, 0.5, 1.0)]
    assert spread == sorted(spread)
    assert spread[0] < spread[2]
