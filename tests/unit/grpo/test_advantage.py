"""Group-relative advantages: closed forms and the degenerate groups."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_async.grpo.advantage import EPS, group_advantages


def test_advantages_are_returns_minus_the_group_mean_in_order():
    assert group_advantages([1.0, 0.0, 0.0, 1.0], normalise_std=False) == [0.5, -0.5, -0.5, 0.5]


def test_with_std_they_are_divided_by_the_population_deviation():
    # Mean 0.25; population std sqrt(3)/4; advantages sqrt(3) and -1/sqrt(3).
    found = group_advantages([1.0, 0.0, 0.0, 0.0], normalise_std=True)
    assert found == pytest.approx([math.sqrt(3)] + [-1 / math.sqrt(3)] * 3)


@pytest.mark.parametrize("normalise_std", [False, True])
def test_equal_returns_give_zeros(normalise_std):
    assert group_advantages([0.3] * 8, normalise_std=normalise_std) == pytest.approx([0.0] * 8)


def test_a_deviation_below_eps_is_not_blown_up():
    assert group_advantages([0.0, EPS], normalise_std=True) == [0.0, 0.0]


@pytest.mark.parametrize("returns", [[], [1.0]])
def test_a_lone_episode_has_no_baseline(returns):
    with pytest.raises(ValueError, match="at least 2"):
        group_advantages(returns, normalise_std=False)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_return_that_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match="not finite"):
        group_advantages([0.0, bad], normalise_std=True)


@given(st.lists(st.floats(-10.0, 10.0), min_size=2, max_size=32), st.floats(-5.0, 5.0))
def test_they_sum_to_zero_and_ignore_a_shift_of_all_returns(returns, shift):
    found = group_advantages(returns, normalise_std=False)
    assert math.fsum(found) == pytest.approx(0.0, abs=1e-9)
    shifted = group_advantages([value + shift for value in returns], normalise_std=False)
    assert shifted == pytest.approx(found, abs=1e-9)


@given(st.lists(st.floats(-10.0, 10.0), min_size=2, max_size=32))
def test_normalised_they_have_unit_variance_or_are_all_zero(returns):
    found = group_advantages(returns, normalise_std=True)
    variance = math.fsum(value * value for value in found) / len(found)
    assert variance == pytest.approx(1.0, rel=1e-6) or found == [0.0] * len(returns)
