from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_async.config.correction import CorrectionConfig
from spade_async.grpo.correction import Tokens, make_rule
from spade_async.grpo.correction.tokens import carried
from spade_async.grpo.loss import kl_to_start, token_logprobs


def surrogate(
    policy: torch.Tensor, behaviour: torch.Tensor, advantages: torch.Tensor
) -> torch.Tensor:
    """Token losses of the default rule, each token a sequence of its own."""
    rule = make_rule(CorrectionConfig(), clip_low=0.2, clip_high=0.2)
    tokens = Tokens(policy, policy.detach(), behaviour, advantages, torch.arange(len(policy)))
    return rule(tokens).losses


def gradient_of_one_token(
    logits: list[float], target: int, generator_logprob: float, advantage: float, temperature: float
) -> torch.Tensor:
    z = torch.tensor([logits], requires_grad=True)
    logprobs, _ = token_logprobs(z, torch.tensor([target]), torch.tensor([temperature]))
    loss = surrogate(logprobs, torch.tensor([generator_logprob]), torch.tensor([advantage]))
    loss.sum().backward()
    assert z.grad is not None
    return z.grad[0]


@pytest.mark.parametrize("advantage", [1.5, -0.5])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_gradient_of_one_token_is_the_closed_form(advantage: float, temperature: float) -> None:
    # d loss / d z_j = -w A (1[j = a] - p_j) / T, here with V = 2 and p = (3/4, 1/4)
    logits = [temperature * math.log(3.0), 0.0]
    generator = math.log(0.6)  # w = 0.75 / 0.6 = 1.25
    found = gradient_of_one_token(logits, 0, generator, advantage, temperature)
    expected = -1.25 * advantage / temperature * torch.tensor([1 - 0.75, -0.25])
    torch.testing.assert_close(found, expected)


def test_weight_is_truncated_at_the_cap() -> None:
    # p = 1/2, mu = 1/100: the ratio 50 counts as 2
    found = gradient_of_one_token([0.0, 0.0], 0, math.log(0.01), 1.0, 1.0)
    torch.testing.assert_close(found, -2.0 * torch.tensor([0.5, -0.5]))


def test_on_policy_it_is_reinforce_with_a_baseline() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 5)
    targets, advantages = torch.randint(0, 5, (6,)), torch.randn(6)
    ones = torch.ones(6)

    ours = logits.clone().requires_grad_()
    logprobs, _ = token_logprobs(ours, targets, ones)
    surrogate(logprobs, logprobs.detach(), advantages).sum().backward()

    reinforce = logits.clone().requires_grad_()
    logprobs, _ = token_logprobs(reinforce, targets, ones)
    (-advantages * logprobs).sum().backward()
    torch.testing.assert_close(ours.grad, reinforce.grad)


def test_stale_probabilities_change_the_loss() -> None:
    # One update per batch: the clip never acts, so only the weight carries what mu was.
    fresh = gradient_of_one_token([0.0, 0.0], 0, math.log(0.5), 1.0, 1.0)
    stale = gradient_of_one_token([0.0, 0.0], 0, math.log(0.8), 1.0, 1.0)
    torch.testing.assert_close(stale, fresh * 0.5 / 0.8)


def test_an_overflowing_log_ratio_does_not_poison_its_neighbours() -> None:
    logits = torch.zeros(2, 3, requires_grad=True)
    logprobs, _ = token_logprobs(logits, torch.tensor([0, 1]), torch.ones(2))
    losses = surrogate(logprobs, torch.tensor([-1000.0, -1.0]), torch.tensor([1.0, 1.0]))
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_a_ruled_out_token_has_finite_entropy() -> None:
    logits = torch.tensor([[0.0, 0.0, -math.inf]], requires_grad=True)
    logprobs, entropy = token_logprobs(logits, torch.tensor([0]), torch.ones(1))
    assert float(entropy) == pytest.approx(math.log(2))
    assert float(logprobs.detach()) == pytest.approx(-math.log(2))
    assert not entropy.requires_grad


def test_temperature_flattens_the_distribution() -> None:
    logits = torch.tensor([[math.log(9.0), 0.0]])
    logprobs, _ = token_logprobs(logits, torch.tensor([0]), torch.tensor([2.0]))
    assert float(logprobs) == pytest.approx(math.log(3 / 4))  # 9^(1/2) : 1


def test_proximal_ratio_is_one_and_carries_the_gradient() -> None:
    logprobs = torch.tensor([-3.0, -80.0], requires_grad=True)
    ratio = carried(logprobs)
    assert ratio.tolist() == [1.0, 1.0]
    ratio.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [1.0, 1.0]


@given(policy=st.floats(-6, -0.01), start=st.floats(-6, -0.01), weight=st.floats(0.1, 2))
@settings(max_examples=40, deadline=None)
def test_kl_gradient_is_that_of_the_reverse_kl(policy: float, start: float, weight: float) -> None:
    # with s = log start - log policy the estimate is w (e^s - 1 - s), its gradient -w s
    logprob = torch.tensor([policy], requires_grad=True)
    estimate = kl_to_start(logprob, torch.tensor([start]), torch.tensor([weight]))
    estimate.sum().backward()
    s = start - policy
    assert float(estimate.detach()) == pytest.approx(
        weight * (math.exp(s) - 1 - s), rel=1e-3, abs=1e-5
    )
    assert logprob.grad is not None
    assert float(logprob.grad) == pytest.approx(-weight * s, rel=1e-3, abs=1e-4)


def test_expected_kl_gradient_is_exact_over_the_whole_vocabulary() -> None:
    # Sum over tokens of p * (gradient of the estimate) must be the gradient of KL(p || q).
    torch.manual_seed(1)
    z, start = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    q = torch.log_softmax(start, -1)

    exact = z.clone().requires_grad_()
    p = torch.log_softmax(exact, -1)
    (p.exp() * (p - q)).sum().backward()

    ours = z.clone().requires_grad_()
    logprobs = torch.log_softmax(ours, -1)
    estimates = kl_to_start(logprobs, q, torch.ones(4, dtype=torch.float64))
    (logprobs.detach().exp() * estimates).sum().backward()
    torch.testing.assert_close(ours.grad, exact.grad)
