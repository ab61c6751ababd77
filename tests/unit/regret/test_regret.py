"""Regret from pairs: closed forms, missing sides, classes."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_async.regret import estimate
from spade_async.types import MissingRegret, RegretClass, RegretEstimate


def regret_of(pairs, leak_share=0.0):
    return estimate(pairs, leak_share=leak_share, mastered_at=0.9, out_of_reach_at=0.1)


def test_regret_is_the_mean_difference_over_pairs():
    # Differences 1, 0, 1, 0: mean 1/2, sample variance 1/3, standard error sqrt(1/3)/2.
    found = regret_of([(1.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
    assert found.regret == 0.5
    assert found.standard_error == pytest.approx(math.sqrt(1 / 3) / 2)
    assert (found.mean_with_hint, found.mean_no_hint, found.num_pairs) == (0.75, 0.25, 4)


def test_a_pair_with_a_missing_side_leaves_both_arms():
    # Only (1, 0) is complete; the lone 1.0 of each arm must not move a mean.
    found = regret_of([(1.0, 0.0), (1.0, None), (None, 1.0)])
    assert found == replace(regret_of([(1.0, 0.0)]), num_played=3)
    assert found.num_pairs == 1
    assert found.standard_error is None


@pytest.mark.parametrize("pairs", [[], [(None, None)], [(1.0, None), (None, 0.0)]])
def test_without_a_complete_pair_the_regret_is_missing_and_no_number(pairs):
    assert regret_of(pairs) == MissingRegret(f"none of {len(pairs)} pairs has both episodes")


def test_a_leaking_hint_is_paid_by_the_share_that_does_not_leak():
    found = regret_of([(1.0, 0.0), (1.0, 0.0)], leak_share=0.75)
    assert found.regret == 1.0
    assert found.paid_regret == 0.25


def test_a_hint_that_harms_keeps_its_sign():
    assert regret_of([(0.0, 1.0), (0.0, 0.5)], leak_share=0.5).paid_regret == -0.375


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(1.0, 0.9)], RegretClass.MASTERED),
        ([(1.0, 0.89)], RegretClass.FRONTIER),
        ([(0.1, 0.0)], RegretClass.OUT_OF_REACH),
        ([(0.11, 0.0)], RegretClass.FRONTIER),
        # Solved without the hint, failed with it: mastered is asked first.
        ([(0.0, 1.0)], RegretClass.MASTERED),
        # Returns are clamped one by one before the mean: (0, 0.3) is 0.15, not -0.35.
        ([(-1.0, -1.0), (0.3, 0.0)], RegretClass.FRONTIER),
    ],
)
def test_classes_go_by_mean_success_at_their_thresholds(pairs, expected):
    assert regret_of(pairs).regret_class is expected


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_return_that_is_not_finite_is_our_fault_and_raises(bad):
    with pytest.raises(ValueError, match="not finite"):
        regret_of([(bad, 0.0)])


def test_a_leak_share_outside_the_unit_interval_raises():
    with pytest.raises(ValueError, match=r"leak_share=1\.5"):
        regret_of([(1.0, 0.0)], leak_share=1.5)


returns = st.one_of(st.none(), st.floats(-1.0, 1.0))


@given(st.lists(st.tuples(returns, returns), max_size=12), st.floats(0.0, 1.0))
def test_the_estimate_is_bounded_and_does_not_depend_on_order_or_on_missing_pairs(pairs, leak):
    found = regret_of(pairs, leak)
    complete = [p for p in pairs if None not in p]
    if not complete:
        assert isinstance(found, MissingRegret)
        return
    assert isinstance(found, RegretEstimate)
    assert found == replace(regret_of(complete, leak), num_played=len(pairs))
    assert abs(found.paid_regret) <= abs(found.regret) <= 2.0
    assert found.regret == pytest.approx(found.mean_with_hint - found.mean_no_hint, abs=1e-12)
    assert regret_of(pairs[::-1], leak).regret == pytest.approx(found.regret, abs=1e-12)
