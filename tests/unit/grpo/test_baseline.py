"""Baselines per role: closed forms, and what a lone, a missing or an equal member does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_async.grpo.advantage import group_advantages
from spade_async.grpo.baseline import RULES, Valued, advantages, has_no_variance


def of(*groups, skills=None):
    """[[returns of a group], ...] -> samples; the skill is the group's unless given."""
    return [
        Valued(f"g{i}", skills[i] if skills else f"g{i}", value)
        for i, group in enumerate(groups)
        for value in group
    ]


def test_dr_grpo_is_the_group_mean_and_bit_identical_to_the_rule_before():
    values = [0.1, 0.7, 0.2, 0.9]
    assert advantages(of(values), "dr_grpo") == group_advantages(values, normalise_std=False)


def test_z_score_is_bit_identical_to_the_normalised_rule_before():
    values = [0.1, 0.7, 0.2, 0.9]
    assert advantages(of(values), "z_score") == group_advantages(values, normalise_std=True)


def test_leave_one_out_is_the_value_less_the_mean_of_the_others():
    # 1 - (0 + 0.5)/2, 0 - (1 + 0.5)/2, 0.5 - (1 + 0)/2
    assert advantages(of([1.0, 0.0, 0.5]), "leave_one_out") == pytest.approx([0.75, -0.75, 0.0])


def test_skill_mean_spans_the_groups_of_a_skill():
    samples = of([1.0, 0.0], [1.0, 1.0], [0.5, 0.0], skills=["logic", "logic", "math"])
    # logic: mean 0.75; math: mean 0.25
    expected = [0.25, -0.75, 0.25, 0.25, 0.25, -0.25]
    assert advantages(samples, "skill_mean") == pytest.approx(expected)


@pytest.mark.parametrize("rule", RULES)
def test_equal_values_give_zeros(rule):
    assert advantages(of([0.3] * 8), rule) == pytest.approx([0.0] * 8)
    assert has_no_variance([0.3] * 8)
    assert not has_no_variance([0.3] * 7 + [0.30001])


@pytest.mark.parametrize("rule", RULES)
def test_a_lone_sample_has_no_advantage_and_the_others_keep_theirs(rule):
    found = advantages(of([1.0], [1.0, 0.0]), rule)
    assert found[0] is None
    assert found[1] == -found[2] != 0.0


def test_a_lone_member_of_a_group_still_has_its_skill():
    samples = of([1.0], [0.0, 0.5], skills=["logic", "logic"])
    assert advantages(samples, "skill_mean") == pytest.approx([0.5, -0.5, 0.0])


@pytest.mark.parametrize("rule", RULES)
def test_a_missing_member_is_left_out_and_never_a_zero(rule):
    # Three of four came: as if the group had three.
    assert advantages(of([1.0, 1.0, 0.0]), rule) != advantages(of([1.0, 1.0, 0.0, 0.0]), rule)[:3]


@pytest.mark.parametrize("rule", RULES)
def test_no_samples_have_no_advantages(rule):
    assert advantages([], rule) == []


def test_what_is_not_finite_and_an_unknown_rule_are_refused():
    with pytest.raises(ValueError, match="not finite"):
        advantages(of([math.nan, 1.0]), "dr_grpo")
    with pytest.raises(ValueError, match="expected one of dr_grpo"):
        advantages(of([0.0, 1.0]), "mean")


@given(
    st.lists(st.lists(st.floats(-2.0, 2.0), min_size=2, max_size=6), min_size=1, max_size=4),
    st.sampled_from(RULES),
    st.floats(-1.0, 1.0),
)
def test_each_baseline_sums_to_zero_and_ignores_a_shift(groups, rule, shift):
    found = advantages(of(*groups), rule)
    assert all(value is not None for value in found)
    if rule == "z_score":  # a deviation next to EPS may fall on either side of it
        return
    start = 0
    for group in groups:
        assert math.fsum(found[start : start + len(group)]) == pytest.approx(0.0, abs=1e-8)
        start += len(group)
    shifted = advantages(of(*[[v + shift for v in group] for group in groups]), rule)
    assert shifted == pytest.approx(found, abs=1e-8)
