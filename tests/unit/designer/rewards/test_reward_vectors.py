"""Golden vectors of the reference, A2 and A5 to A12, and its edges (compat mode)."""

from __future__ import annotations

import math

import pytest

from spade_async.designer.rewards import reference_batch as batch
from spade_async.designer.rewards import reference_rules as rules
from spade_async.designer.rewards.blend import Weights
from spade_async.designer.rewards.facts import Facts
from spade_async.designer.rewards.learning_potential import PotentialTracker, Trackers
from spade_async.designer.rewards.plateau import Plateau
from spade_async.designer.rewards.scale import reference_scale, role_weights
from spade_async.designer.rewards.variance import variance_bonus

NEAR = {"abs": 1e-9, "rel": 0.0}


def near(expected):
    return pytest.approx(expected, **NEAR)


def fact(skill="logic", plays=None, hint=None, **more):
    return Facts(skill=skill, plays=plays or {}, hint_mean=hint, **more)


def trackers(**levels):
    found = Trackers(gamma_fast=0.8, gamma_slow=0.2)
    for skill, level in levels.items():
        found.of(skill).update(level)
    return found


# A2 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solve_rate", "value"),
    [(0.5, 1.0), (0.15, 0.0), (0.85, 0.0), (0.3, 0.6), (0.2, 0.2), (1.0, 0.0)],
)
def test_a2_plateau(solve_rate, value):
    assert Plateau()(solve_rate) == near(value)


def test_a2_variance_bonus_scale_and_role_weights():
    assert variance_bonus([0.0, 1.0]) == near(1.0)
    assert reference_scale(2, 8, 3) == near(12.0)
    assert reference_scale(0, 8, 3) == near(1.0)
    assert reference_scale(24, 192, 4) == near(32.0)
    assert reference_scale(24, 192, 8) == near(50.0)
    assert role_weights(1, 1, 4) == (4.0, 1.0)


# A5, A6, A8 ----------------------------------------------------------------------------------


def test_a5_learning_potential():
    tracker = PotentialTracker(gamma_fast=0.8, gamma_slow=0.2)
    assert tracker.update(0.25) == 0.0
    assert tracker.update(0.75) == near(0.25)
    assert (tracker.signed, tracker.slow) == (near(0.25), near(0.35))
    with pytest.raises(ValueError, match="gamma_slow"):
        PotentialTracker(gamma_fast=0.2, gamma_slow=0.8)


def test_a6_immediate_learning_potential():
    moved = trackers()
    designs = {"a": fact(plays={0: [0.0, 0.4]}), "b": fact(plays={0: [0.8, 0.8]})}
    paid = batch.immediate(rules.ReferenceLearningPotential(), designs, moved, scale=10.0)
    assert {n: r.value for n, r in paid.raws.items()} == near({"a": 0.2, "b": 0.8})
    assert paid.rewards == near({"a": -3.0, "b": 3.0})
    assert moved.level("logic") == near(0.5)
    assert paid.metrics["medium_pct"] == 1.0
    assert paid.metrics["avg_game_std"] == near(0.1)


def test_a6_with_the_variance_bonus_and_no_update():
    moved = trackers()
    designs = {
        "unplayed": fact(),
        "repaired": fact(plays={0: [0.0, 1.0]}, repaired=True),
        "valid": fact(plays={0: [0.0, 1.0]}),
    }
    rule = rules.ReferenceLearningPotential(variance=True)
    paid = batch.immediate(rule, designs, moved, scale=2.0, update=False)
    assert paid.rewards == near({"repaired": -1.5, "valid": 1.5})
    assert "logic" not in moved


def test_a8_delayed_learning_potential():
    designs = {
        "a": fact(plays={0: [0.0, 0.4]}),
        "b": fact(plays={0: [1.0, 1.0]}),
        "c": fact("math", {0: [0.2, 0.6]}),
        "d": fact("math"),
        "e": fact("unknown", {0: [1.0]}),
    }
    seeded = trackers(logic=0.5, math=0.2)
    paid = batch.delayed(rules.ReferenceLearningPotential(), designs, seeded, scale=10.0)
    # An unknown skill keeps the reward it had: there is none here.
    assert paid.rewards == near({"a": -1.0, "b": 1.0, "c": 1.0, "d": -1.0})
    assert {n: r.value for n, r in paid.raws.items()} == near(
        {"a": 0.3, "b": 0.5, "c": 0.2, "d": 0}
    )


def test_a8_the_tracker_moves_before_it_is_read():
    seeded = trackers(logic=0.0)
    plays = {"a": [1.0, 1.0], "b": [0.0, 0.0], "c": [0.5, 0.5]}
    designs = {name: fact(plays={0: returns}) for name, returns in plays.items()}
    rule = rules.ReferenceLearningPotential()
    paid = batch.delayed(rule, designs, seeded, scale=10.0, update=True)
    tracker = seeded.of("logic")
    assert (tracker.fast, tracker.slow, tracker.signed) == (near(0.4), near(0.1), near(0.25))
    assert {n: r.value for n, r in paid.raws.items()} == near({"a": 0.9, "b": 0.1, "c": 0.4})
    assert paid.rewards == near({"a": 13 / 3, "b": -11 / 3, "c": -2 / 3})


def test_a8_variance():
    designs = {"a": fact(plays={0: [0.0, 1.0]}), "b": fact(plays={0: [0.5]})}
    rule = rules.ReferenceLearningPotential(variance=True)
    paid = batch.delayed(rule, designs, trackers(logic=0.5), scale=2.0)
    assert paid.rewards == near({"a": 1.0, "b": -1.0})


# A7, A10 -------------------------------------------------------------------------------------


def test_a7_immediate_regret():
    designs = {"a": fact(plays={0: [0.4]}, hint=0.2), "b": fact(plays={0: [0.1]}, hint=0.9)}
    paid = batch.immediate(rules.ReferenceRegret(), designs, trackers(), scale=10.0)
    assert paid.raws["a"].components["regret"] == near(-0.2)
    assert paid.rewards == near({"a": -4.0, "b": 4.0})
    assert paid.metrics["floored_frac"] == 0.5
    assert paid.metrics["avg_r_hint"] == near(0.55)


def test_a7_timed_out_repaired_valid():
    designs = {
        "timed_out": fact(plays={0: [0.2]}, hint=0.9, timed_out=True),
        "repaired": fact(plays={0: [0.2]}, hint=0.9, repaired=True),
        "valid": fact(plays={0: [0.2]}, hint=0.7),
    }
    paid = batch.immediate(rules.ReferenceRegret(), designs, trackers(), scale=3.0)
    assert paid.rewards == near({"timed_out": -1.5, "repaired": 0.0, "valid": 1.5})
    assert paid.metrics["step_timeout_frac"] == near(1 / 3)


def test_a10_delayed_regret():
    designs = {
        "a": fact(plays={0: [0.2, 0.2]}, hint=0.8),
        "b": fact(plays={0: [0.5, 0.5]}, hint=0.1),
        "c": fact("math", {0: [0.5]}, 0.9, timed_out=True),
        "d": fact("math"),
    }
    paid = batch.delayed(rules.ReferenceRegret(), designs, scale=10.0)
    assert paid.rewards == near({"a": 3.0, "b": -3.0, "c": -2.5, "d": 2.5})
    assert (paid.metrics["floored_frac"], paid.metrics["step_timeout_frac"]) == (0.25, 0.25)


def test_a10_all_accumulated_plays_count():
    designs = {
        "a": fact(plays={0: [0.1], 1: [0.1]}, hint=0.9),
        "b": fact(plays={2: [0.3]}, hint=0.5),
    }
    paid = batch.delayed(rules.ReferenceRegret(), designs, scale=2.0)
    assert paid.rewards == near({"a": 0.6, "b": -0.6})


# A9 ------------------------------------------------------------------------------------------


def test_a9_micro_lp():
    designs = {
        "a": fact(plays={0: [0.0, 0.0], 2: [1.0, 1.0]}),
        "b": fact(plays={0: [0.25, 0.25], 1: [0.75, 0.75]}),
        "c": fact("math", {0: [1.0], 1: [0.0]}),
        "d": fact("math"),
    }
    paid = batch.delayed(rules.ReferenceMicroLp(), designs, scale=4.0)
    assert {n: r.value for n, r in paid.raws.items()} == near({"a": 1.0, "b": 0.5, "c": 0, "d": 0})
    assert paid.rewards == near({"a": 1.0, "b": -1.0, "c": 0.0, "d": 0.0})
    assert paid.metrics["skill_logic/early_mean"] == near(0.125)
    assert paid.metrics["skill_logic/late_mean"] == near(0.875)
    assert paid.metrics["skill_math/improvement"] == near(-0.5)
    assert paid.metrics["improving_skill_pct"] == 50.0


def test_a9_odd_window_and_one_offset():
    lone = {"a": fact(plays={0: [0.0], 1: [0.5], 2: [1.0]})}
    paid = batch.delayed(rules.ReferenceMicroLp(), lone, scale=4.0)
    assert paid.metrics["skill_logic/early_mean"] == 0.0
    assert paid.metrics["skill_logic/late_mean"] == near(0.75)
    assert paid.rewards == {"a": 0.0}
    one = batch.delayed(rules.ReferenceMicroLp(), {"a": fact(plays={0: [1.0, 0.0]})}, scale=4.0)
    assert one.raws["a"].value == 0.0


# A11, A12 ------------------------------------------------------------------------------------


def test_a11_blend_with_the_weights_of_the_code():
    designs = {
        "g1": fact(plays={0: [0.0, 0.0], 1: [0.6, 0.6]}, hint=0.3),
        "g2": fact(plays={0: [1.0, 1.0], 1: [1.0, 1.0]}, hint=1.0),
        "g3": fact("math", {0: [0.5, 0.5], 1: [0.1, 0.1]}),
        "g4": fact("math", hint=0.15),
    }
    paid = batch.delayed(rules.ReferenceBlend(), designs, scale=10.0)
    g1 = paid.raws["g1"].components
    assert (g1["regret"], g1["micro_lp"], g1["solve_rate"]) == (near(0.3), near(0.6), near(0.3))
    assert (g1["frontier"], g1["plateau"]) == (near(0.04), near(0.6))
    values = {name: raw.value for name, raw in paid.raws.items()}
    assert values == near({"g1": 4.0, "g2": 0.0, "g3": -11 / 3, "g4": 0.5})
    assert paid.masked == {"g3"}
    assert paid.rewards == near({"g1": 20.0, "g2": -20.0, "g4": 0.0})
    expected = {
        "blend_regret_mean": -0.0125,
        "blend_regret_std": 0.3007802353878991,
        "blend_micro_lp_mean": 0.05,
        "blend_micro_lp_std": 0.3570714214271424,
        "blend_win_rate_mean": 0.4,
        "blend_frontier_penalty_mean": 0.145,
        "comp_regret_norm": 0.475 / 0.6,
        "comp_micro_lp_norm": 1.25,
        "blend_plateau_mean": 0.3,
        "blend_win_rate_var_mean": 0.0325,
        "blend_early_mean": 0.5,
        "blend_late_mean": 1.7 / 3,
        "masked_frac": 0.25,
    }
    assert {name: paid.metrics[name] for name in expected} == near(expected)


PLATEAU = rules.ReferenceBlend(
    Weights(regret=1.0, micro_lp=0.0, plateau=1.0, frontier=0.0), regret_range="floor"
)
FRONTIER = rules.ReferenceBlend(Weights(regret=0.0, micro_lp=0.0, plateau=0.0, frontier=1.0))


def test_a12_plateau_configuration():
    designs = {
        "a": fact(plays={0: [1.0, 1.0]}),
        "b": fact(plays={0: [0.5, 0.5]}, hint=0.8),
        "c": fact("math", {0: [0.2, 0.2]}, 0.275),
    }
    paid = batch.delayed(PLATEAU, designs, scale=1.0)
    assert {n: r.value for n, r in paid.raws.items()} == near({"a": 0.0, "b": 2.0, "c": 0.7})
    assert paid.rewards == near({"a": -1.0, "b": 1.0, "c": 0.0})
    assert paid.metrics["blend_plateau_mean"] == near(0.4)


def test_a12_frontier_only():
    designs = {"a": fact(plays={0: [1.0]}), "b": fact(plays={0: [0.5]})}
    paid = batch.delayed(FRONTIER, designs, scale=1.0)
    assert (paid.raws["a"].value, paid.raws["b"].value) == (near(-3.125), 0.0)
    assert (paid.masked, paid.rewards) == ({"a"}, {"b": 0.0})
    assert paid.metrics["comp_frontier_norm"] == near(1.5625)


def test_a12_slope_against_two_buckets():
    rise = fact(plays={0: [0.0], 1: [0.5], 2: [1.0]})
    assert rules.progress(rise, "slope") == near(1.0)
    assert rules.progress(rise, "two_bucket") == near(0.75)
    weighted = fact(plays={0: [1.0] * 4, 1: [0.0], 2: [1.0]})
    assert rules.progress(weighted, "slope") == near(-2 / 7)


def test_a12_the_mask_is_strict():
    only_lp = Weights(regret=0.0, micro_lp=1.0, plateau=0.0, frontier=0.0)
    regress = fact(plays={0: [1.0], 1: [0.0]})
    unsigned = rules.ReferenceBlend(only_lp, signed=False).raw(regress, trackers())
    assert (unsigned.value, unsigned.is_masked) == (0.0, False)
    only_regret = Weights(regret=0.15, micro_lp=0.0, plateau=0.0, frontier=0.0)
    rule = rules.ReferenceBlend(only_regret)
    below = rule.raw(fact(plays={0: [5e-13]}, hint=0.0), trackers())
    assert below.value == pytest.approx(-5e-13, rel=1e-3)
    assert below.is_masked
    assert not rule.raw(fact(plays={0: [0.0]}, hint=0.0), trackers()).is_masked


@pytest.mark.parametrize(
    "rule",
    [
        rules.ReferenceRegret(),
        rules.ReferenceBlend(),
        rules.ReferenceLearningPotential(),
        rules.ReferenceMicroLp(),
    ],
    ids=lambda rule: rule.name,
)
def test_a12_nothing_gives_empty_metrics(rule):
    for found in (
        batch.delayed(rule, {}, trackers(), scale=1.0),
        batch.immediate(rule, {}, trackers(), scale=1.0),
    ):
        assert (found.rewards, found.metrics) == ({}, {})


# Errata --------------------------------------------------------------------------------------


def test_errata_5_1_the_first_offset_is_the_first_present_even_if_empty():
    assert rules.matched_regret(fact(plays={0: [], 1: [0.5]}, hint=0.5)) == 0.5
    assert rules.matched_regret(fact(plays={1: [0.5]}, hint=0.5)) == 0.0


def test_errata_5_5_samples_of_an_unknown_skill_vanish():
    designs = {"a": fact(plays={0: [0.0]}), "b": fact("new", {0: [1.0]})}
    rule = rules.ReferenceRegret()
    paid = batch.immediate(rule, designs, trackers(), scale=1.0, skills=["logic"])
    assert set(paid.rewards) == {"a"}


def test_errata_2_5_one_nan_makes_the_rewards_of_its_skill_nan():
    designs = {
        "a": fact(plays={0: [math.nan]}, hint=0.5),
        "b": fact(plays={0: [0.5]}, hint=0.5),
        "c": fact("math", {0: [0.5]}, 0.5),
    }
    paid = batch.delayed(PLATEAU, designs, scale=1.0)
    assert math.isnan(paid.rewards["b"])
    assert paid.rewards["c"] == 0.0
