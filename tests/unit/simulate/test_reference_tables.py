"""The comparison of rules and the two-role table: ordering, and figures within a tolerance.

Expected figures come from an independent model of the same settings; docs/simulate.md prints ours.
"""

import time

import pytest

from spade_async.simulate import reference
from spade_async.simulate.durations import mean
from spade_async.simulate.reference import ALL_RULES, Size, one_role, two_roles

SIZE = Size(seeds=2, steps=120)
RATE_TOLERANCE = 0.04
"""Of trained tokens per second: two short seeds against three long ones."""
RATES = {
    (1, 256): {"admission": 7_753, "drop": 6_498, "cancel": 6_498, "edf": 6_734},
    (2, 256): {"admission": 12_053, "drop": 9_121, "cancel": 9_133, "edf": 9_436},
    (4, 256): {"admission": 16_201, "drop": 12_501, "cancel": 12_525, "edf": 13_693},
    (8, 512): {"admission": 19_160, "drop": 17_906, "edf": 19_089},
}


@pytest.mark.parametrize(("bound", "slots"), RATES, ids=str)
def test_rules_stand_in_the_known_order(bound, slots):
    found = {rule: one_role(rule, bound, slots, size=SIZE) for rule in ALL_RULES}
    rate = {rule: mean(r.trained_tokens_per_s for r in results) for rule, results in found.items()}
    # Enforcing costs; dropping costs more than waiting; cancelling early saves almost nothing.
    assert rate["admission"] >= rate["edf"] * 0.999 > rate["drop"]
    assert rate["cancel"] == pytest.approx(rate["drop"], rel=0.01)
    for rule, expected in RATES[bound, slots].items():
        assert rate[rule] == pytest.approx(expected, rel=RATE_TOLERANCE), rule
    for result in found["edf"]:
        assert result.over_bound_share == 0.0
        assert result.waste_share == 0.0
        assert result.length_ratio == pytest.approx(1.0, abs=1e-9)
        assert result.max_age <= bound
    for result in found["admission"]:
        # The short runs have seen a little less of it than the long ones: 20 to 33 %.
        assert 0.18 <= result.over_bound_share <= 0.35
        assert result.max_age > bound
        assert result.waste_share == 0.0
        assert result.length_ratio == pytest.approx(1.0, abs=1e-9)
    for rule in ("drop", "cancel"):
        for result in found[rule]:
            assert result.over_bound_share == 0.0
            assert 0.15 <= result.waste_share <= 0.34
            assert 0.86 <= result.length_ratio <= 0.94


def test_bound_zero_is_the_synchronous_mode_under_every_rule():
    for rule in ALL_RULES:
        (found,) = one_role(rule, 0, 256, size=Size(1, 60))
        assert (found.mean_age, found.max_age, found.waste_share) == (0.0, 0, 0.0)
        assert found.trained_tokens_per_s == pytest.approx(3_625, rel=RATE_TOLERANCE)
        assert found.learner_idle_share == pytest.approx(0.81, abs=0.02)


def test_a_generator_that_is_the_limit_makes_all_rules_the_same_at_a_wide_bound():
    rates = {
        rule: one_role(rule, 8, 256, learner_tokens_per_s=60_000.0, size=SIZE)[0]
        for rule in ALL_RULES
    }
    assert len({round(found.trained_tokens_per_s, 6) for found in rates.values()}) == 1
    assert rates["edf"].trained_tokens_per_s == pytest.approx(16_242, rel=RATE_TOLERANCE)
    assert rates["drop"].waste_share == 0.0


def test_two_roles_reach_the_known_table():
    """The schedule waits less than the model behind the table did: at most 12 % faster."""
    expected = {
        (0, 0): (164.7, 0.82), (1, 2): (79.3, 0.62), (2, 4): (55.1, 0.45), (4, 8): (39.0, 0.23),
        (8, 8): (33.5, 0.10), (8, 16): (31.0, 0.03),
    }  # fmt: skip
    steps = []
    for (agent, designer), (step_s, idle) in expected.items():
        found = two_roles(agent, designer, size=Size(seeds=2, steps=120))
        ours = mean(r.step_s for r in found)
        assert 0.88 * step_s < ours < 1.04 * step_s, (agent, designer)
        assert mean(r.learner_idle_share for r in found) == pytest.approx(idle, abs=0.08)
        for result in found:
            assert result.num_over_bound == 0
            assert result.num_discarded == 0
            assert result.agent_max_age is not None
            assert result.agent_max_age <= agent
            assert result.designer_max_age is not None
            assert result.designer_max_age <= designer
        steps.append(ours)
    assert steps == sorted(steps, reverse=True)
    assert steps[0] / steps[-1] > 4.5


@pytest.mark.parametrize("validity", [0.0, 0.5, 1.0])
def test_validity_changes_the_step_time_little(validity):
    (found,) = two_roles(4, 8, validity=validity, size=Size(seeds=1, steps=80))
    assert 33.0 < found.step_s < 43.0
    assert found.num_over_bound == 0


def test_ten_hours_pass_in_seconds():
    started_s = time.process_time()
    (found,) = two_roles(8, 16, size=Size(seeds=1, steps=1_200))
    assert found.step_s * 1_200 > 36_000.0
    # 4 s of CPU on a quiet machine.
    assert time.process_time() - started_s < 60.0


def test_tables_have_a_row_per_setting(monkeypatch):
    monkeypatch.setattr(reference, "ONE_ROLE", ((1, 256, 20_000.0, ("edf",)),))
    monkeypatch.setattr(reference, "BOUNDS", ((0, 0), (1, 2)))
    text = reference.tables(one_role_size=Size(1, 25), two_roles_size=Size(1, 20))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 1 + 2
