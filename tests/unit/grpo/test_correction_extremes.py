"""What must never happen with any rule: a NaN, an infinity, or an undefined case."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from spade_async.config.correction import RULES, CorrectionConfig
from spade_async.grpo.advantage import group_advantages
from spade_async.grpo.correction import MAX_LOG_RATIO, Terms, Tokens, make_rule
from spade_async.grpo.correction.tokens import bounded_exp, ratio

torch.set_num_threads(1)
ALL = sorted(RULES)
LARGEST = math.exp(MAX_LOG_RATIO)


def run(
    name: str,
    policy: Sequence[float],
    behaviour: Sequence[float],
    advantages: Sequence[float],
    sequences: Sequence[int] | None = None,
    proximal: Sequence[float] | None = None,
    **values: float,
) -> tuple[Terms, torch.Tensor]:
    """Terms and gradient with respect to log pi, in float32 as in training."""
    leaf = torch.tensor(policy, dtype=torch.float32, requires_grad=True)
    start = leaf.detach() if proximal is None else torch.tensor(proximal, dtype=torch.float32)
    of = range(len(policy)) if sequences is None else sequences
    tokens = Tokens(
        policy=leaf,
        proximal=start,
        behaviour=torch.tensor(behaviour, dtype=torch.float32),
        advantages=torch.tensor(advantages, dtype=torch.float32),
        sequences=torch.tensor(list(of), dtype=torch.int64),
    )
    rule = make_rule(CorrectionConfig.model_validate({"rule": name, **values}))
    terms = rule(tokens)
    (gradient,) = torch.autograd.grad(terms.losses.sum(), leaf, allow_unused=True)
    return terms, torch.zeros_like(leaf) if gradient is None else gradient


def assert_defined(terms: Terms, gradient: torch.Tensor) -> None:
    for found in (terms.losses.detach(), terms.raw, terms.used, gradient):
        assert torch.isfinite(found).all()
        # One token weighs at most the clamped ratio times an advantage of 1, and the penalty.
        assert float(found.abs().max() if found.numel() else 0.0) <= LARGEST * 1.001 + 100
    assert not terms.raw.requires_grad
    assert not terms.used.requires_grad


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("gap", [200.0, -200.0, 1e30, -1e30, 89.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_any_log_ratio_is_finite_forward_and_backward(
    name: str, gap: float, advantage: float
) -> None:
    policy = [-abs(gap) - 0.1 if gap < 0 else -0.1] * 3
    behaviour = [p - gap for p in policy]
    assert_defined(*run(name, policy, behaviour, [advantage] * 3))
    assert_defined(*run(name, policy, behaviour, [advantage] * 3, [0, 0, 0]))
    # The same distance to the start of the update, in a later pass.
    assert_defined(*run(name, policy, behaviour, [advantage] * 3, proximal=behaviour))


@pytest.mark.parametrize("name", ALL)
def test_one_overflowing_token_leaves_its_neighbours_alone(name: str) -> None:
    alone, gradient_alone = run(name, [-1.0], [-1.1], [0.7])
    both, gradient = run(name, [-1.0, -0.1], [-1.1, -500.0], [0.7, 1.0])
    assert_defined(both, gradient)
    assert float(both.losses.detach()[0]) == pytest.approx(float(alone.losses.detach()))
    assert float(gradient[0]) == pytest.approx(float(gradient_alone))


@pytest.mark.parametrize("name", ALL)
def test_no_tokens_are_no_losses(name: str) -> None:
    terms, gradient = run(name, [], [], [])
    assert terms.losses.numel() == terms.raw.numel() == terms.used.numel() == gradient.numel() == 0
    assert float(terms.losses.detach().sum()) == 0.0


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_single_token_on_policy_is_a_plain_policy_gradient(name: str, advantage: float) -> None:
    terms, gradient = run(name, [-1.5], [-1.5], [advantage])
    assert_defined(terms, gradient)
    assert float(terms.losses.detach()) == pytest.approx(-advantage)
    assert float(gradient) == pytest.approx(-advantage)


@pytest.mark.parametrize("name", ALL)
def test_tokens_of_probability_one_are_defined(name: str) -> None:
    assert_defined(*run(name, [0.0, 0.0], [0.0, -1.0], [1.0, -1.0]))
    assert_defined(*run(name, [0.0, -1.0], [-1.0, 0.0], [1.0, -1.0]))
    # Rounding may report a log-probability just above 0.
    assert_defined(*run(name, [1e-7], [1e-7], [1.0]))


@pytest.mark.parametrize("name", ALL)
def test_a_group_of_equal_returns_has_no_gradient(name: str) -> None:
    for normalise in (False, True):
        advantages = group_advantages([0.5, 0.5, 0.5], normalise_std=normalise)
        assert advantages == [0.0, 0.0, 0.0]
        terms, gradient = run(name, [-1.0, -1.0, -1.0], [-1.0, -1.2, -3.0], advantages)
        assert_defined(terms, gradient)
        if name != "squared_log_ratio":  # Its penalty needs no advantage, by design.
            assert gradient.abs().max() == 0.0


def test_a_group_of_one_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="a group needs at least 2"):
        group_advantages([1.0], normalise_std=True)


@pytest.mark.parametrize(
    ("name", "policy", "behaviour", "advantage"),
    [
        ("icepop", -0.1, -9.0, 1.0),
        ("mis_product", -0.1, -9.0, 1.0),
        ("mis_geometric", -0.1, -9.0, -1.0),
        ("gspo", -0.1, -9.0, 1.0),
        ("ppo_behaviour", -0.1, -9.0, 1.0),
        ("dppo_tv", -0.1, -9.0, 1.0),
        ("dppo_kl", -0.1, -9.0, 1.0),
        ("dual_clip", -0.1, -9.0, -1.0),
        ("opsm", -9.0, -0.1, -1.0),
    ],
)
def test_everything_masked_is_a_zero_gradient_and_weight(
    name: str, policy: float, behaviour: float, advantage: float
) -> None:
    terms, gradient = run(name, [policy] * 2, [behaviour] * 2, [advantage] * 2)
    assert_defined(terms, gradient)
    assert gradient.tolist() == [0.0, 0.0]
    assert terms.used.tolist() == [0.0, 0.0]
    assert (terms.raw > 0).all()


@pytest.mark.parametrize("name", ["tis_token", "tis_sequence", "cispo", "truncated_reinforce"])
def test_everything_truncated_weighs_the_cap(name: str) -> None:
    terms, gradient = run(name, [-0.1, -0.1], [-15.0, -15.0], [1.0, -1.0])
    cap = RULES[name].defaults.get("cap", RULES[name].defaults.get("high"))
    assert cap is not None
    assert terms.used.tolist() == pytest.approx([cap, cap])
    assert gradient.tolist() == pytest.approx([-cap, cap])


def test_the_clamped_ratio_keeps_its_gradient() -> None:
    policy = torch.tensor([0.0, -100.0], requires_grad=True)
    found = ratio(policy, torch.tensor([-100.0, 0.0]))
    found.sum().backward()
    assert policy.grad is not None
    assert policy.grad.tolist() == pytest.approx([LARGEST, 1 / LARGEST])
    assert bounded_exp(torch.tensor([math.inf, -math.inf])).isfinite().all()
