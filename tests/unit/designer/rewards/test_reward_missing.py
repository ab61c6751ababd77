"""What is missing has no value, under every variant; state survives a trip through JSON."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_async.config.reward import RewardConfig
from spade_async.designer.reward import PayRule, design_reward
from spade_async.designer.rewards.facts import Facts
from spade_async.designer.rewards.learning_potential import Trackers
from spade_async.designer.rewards.registry import VARIANTS, make

FEW = Trackers(gamma_fast=0.98, gamma_slow=0.85)
KNOWN = Trackers(gamma_fast=0.98, gamma_slow=0.85)
KNOWN.of("s").update(0.5)
PLAYED = {0: [0.0, 1.0], 1: [1.0, 1.0]}


def raw(variant, *, baselines=KNOWN, **facts):
    return make(RewardConfig(variant=variant)).raw(Facts(skill="s", **facts), baselines)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_design_without_plays_has_no_value(variant):
    found = raw(variant, plays={})
    assert (found.value, bool(found.reason)) == (None, True)


@pytest.mark.parametrize("variant", ["regret", "blend"])
def test_a_regret_that_is_missing_is_not_zero(variant):
    assert raw(variant, plays=PLAYED, hint_mean=1.0).reason == "no complete pair"


@pytest.mark.parametrize("variant", ["solve_rate", "micro_lp", "learning_potential"])
def test_what_needs_no_hint_is_paid_without_one(variant):
    assert raw(variant, plays=PLAYED).value is not None


def test_progress_over_one_offset_is_missing():
    assert "progress needs 2" in raw("micro_lp", plays={0: [0.0, 1.0]}).reason
    config = RewardConfig(variant="blend", weight_micro_lp=0.1)
    found = make(config).raw(Facts(skill="s", plays={0: [1.0]}, regret=0.1), KNOWN)
    assert "progress needs 2" in found.reason
    # An offset whose episodes are all missing is no offset.
    assert raw("micro_lp", plays={0: [0.0], 1: []}).value is None


def test_a_gap_counts_as_time_and_not_as_an_offset():
    # 0 to 1 over three learner steps, however many of them were played.
    for plays in ({0: [0.0], 3: [1.0]}, {0: [0.0], 1: [1 / 3], 3: [1.0]}):
        assert raw("micro_lp", plays=plays).value == pytest.approx(1.0)


def test_a_skill_without_a_level_has_no_potential():
    assert "no level yet" in raw("learning_potential", plays=PLAYED, baselines=FEW).reason


def test_the_blend_keeps_the_sign_of_regret_within_its_range():
    for regret_range, low in (("bounded", -0.4), ("floor", 0.0), ("free", -0.4 * 2 / 0.15)):
        config = RewardConfig(variant="blend", regret_range=regret_range, weight_plateau=0.0)
        found = make(config).raw(Facts(skill="s", plays=PLAYED, regret=-2.0), KNOWN)
        assert found.value == pytest.approx(low)


def test_trackers_survive_json():
    trackers = Trackers(gamma_fast=0.8, gamma_slow=0.2)
    for value in (0.25, 0.75, 0.1):
        trackers.of("a").update(value)
    trackers.of("b")
    again = Trackers(gamma_fast=0.8, gamma_slow=0.2)
    again.restore(json.loads(json.dumps(trackers.state())))
    assert again.state() == trackers.state()
    assert again.of("a").potential == trackers.of("a").potential
    assert again.level("b") is None


@given(st.floats(-2.0, 2.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_the_default_pay_is_bit_for_bit_what_it_was(paid_regret, share, penalty):
    value = make(RewardConfig()).raw(Facts(skill="s", plays={}, regret=paid_regret), FEW)
    rule = PayRule(novelty_penalty=penalty, invalid=-1.0, repair_penalty=0.1)
    found = design_reward(value, rule, skeleton_share=share)
    assert found is not None
    assert math.copysign(1.0, found) == math.copysign(1.0, paid_regret - penalty * share)
    assert found == paid_regret - penalty * share
