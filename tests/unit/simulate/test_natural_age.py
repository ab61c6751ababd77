"""Little's law at start-up: closed forms, and what a configuration is told."""

import math
import random

import pytest

from spade_async.config.schema import Config
from spade_async.simulate.durations import Fixed, LogNormal, Measured, largest_of, tail_factor
from spade_async.simulate.natural_age import (
    AgeCheck,
    RoleLoad,
    Verdict,
    check_bounds,
    natural_age,
    role_ages,
)
from spade_async.simulate.one_role import OneRoleSetting, simulate_one_role
from spade_async.simulate.reference import LENGTHS
from spade_async.simulate.startup import bound_lines, load_of, usable_slots


def test_mean_of_a_capped_log_normal_is_its_closed_form():
    # Without a cap: median * exp(sigma^2 / 2).
    assert LogNormal(10.0, 1.0).mean == pytest.approx(10.0 * math.exp(0.5))
    assert LogNormal.of_mean(20.0, 1.0).mean == pytest.approx(20.0)
    # With one: median e^(s^2/2) Phi(k - s) + cap (1 - Phi(k)), k = ln(cap / median) / s.
    assert LENGTHS.mean == pytest.approx(3142.8, abs=0.1)
    rng = random.Random(1)
    drawn = [LENGTHS.draw(rng) for _ in range(40_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(LENGTHS.mean, rel=0.02)
    assert max(drawn) == 16_384.0


@pytest.mark.parametrize(
    ("sigma", "expected"),
    [(1.0, (1.50, 2.13, 2.86, 3.63)), (0.5, (1.27, 1.57, 1.89, 2.22))],
)
def test_tail_factors_of_groups(sigma, expected):
    """Known values for log-normal lengths capped at 16k, to one in the last digit."""
    lengths = LogNormal(2000.0, sigma, 16_384.0)
    found = [tail_factor(lengths, count) for count in (2, 4, 8, 16)]
    assert found == pytest.approx(expected, abs=0.011)


def test_longest_of_a_group_in_closed_form():
    assert largest_of(Fixed(7.0), 8) == 7.0
    # Two normals: E[max] = mean + s / sqrt(pi); for small sigma a log-normal is a normal.
    small = LogNormal(1.0, 0.01)
    assert largest_of(small, 2) - small.mean == pytest.approx(0.01 / math.sqrt(math.pi), rel=0.02)
    # Two of {1, 3}: 1 with 1/4, else 3.
    assert largest_of(Measured([1.0, 3.0]), 2) == pytest.approx(2.5, abs=0.01)


def test_natural_age_of_the_reference_setting():
    # C / (G B) = 256 / (8 * 32) = 1, times 2.85; 16 ready groups are half a step more.
    tail = tail_factor(LENGTHS, 8)
    assert natural_age(slots=256, group_size=8, quota=32, tail=tail) == pytest.approx(
        2.85, abs=0.02
    )
    more = natural_age(slots=256, group_size=8, quota=32, tail=tail, ready=16.0)
    assert more == pytest.approx(3.35, abs=0.02)


def test_simulated_age_without_a_bound_is_littles_law():
    """Bound far away, learner never busy: the mean age is that of the slots alone.

    One slot costs the same whoever else decodes, so no slowing by company is in the way.
    """
    setting = OneRoleSetting(
        rule="edf", bound=60, slots=256, lengths=LENGTHS, learner_tokens_per_s=1e9, pause_s=0.0,
        step_per_sequence_s=0.0,
    )  # fmt: skip
    found = simulate_one_role(setting, steps=300, warm_up=20, seed=5)
    expected = natural_age(slots=256, group_size=8, quota=32, tail=tail_factor(LENGTHS, 8))
    # A group completes between two steps and waits half a step for the quota to fill.
    assert expected - 0.6 < found.mean_age < expected + 0.6


def test_a_bound_of_twice_the_natural_age_is_free_and_half_of_it_throttles():
    steps = {}
    for bound in (1, 3, 6, 12, 40):
        setting = OneRoleSetting(rule="edf", bound=bound, slots=256, lengths=LENGTHS)
        steps[bound] = simulate_one_role(setting, steps=200, warm_up=20, seed=2).step_s
    age = natural_age(slots=256, group_size=8, quota=32, tail=tail_factor(LENGTHS, 8))
    verdicts = {bound: AgeCheck("agent", "k", bound, age).verdict for bound in steps}
    assert verdicts == {
        1: Verdict.THROTTLES, 3: Verdict.TIGHT, 6: Verdict.FREE, 12: Verdict.FREE,
        40: Verdict.FREE,
    }  # fmt: skip
    assert steps[6] == pytest.approx(steps[40], rel=0.03)
    assert steps[1] > 1.8 * steps[40]


def _load(**changed) -> RoleLoad:
    values = dict(
        slots=64, agent_quota=8, designer_quota=2, group_size=4, episodes=8, pool_share=0.25,
        validity=0.75, design_s=Fixed(20.0), episode_s=Fixed(10.0),
    )  # fmt: skip
    return RoleLoad(**(values | changed))


def test_ages_of_both_roles_in_closed_form():
    # Per step: 8 designs of 20 s; 6 of them played, 16 episodes each of 10 s; 2 pool plays of 8:
    # 160 + 960 + 160 = 1280 slot seconds, 20 s with 64 slots. A play lives 10 s: age 0.5. A design
    # group lives 20 + 10 s: age 1.5.
    assert role_ages(_load()) == pytest.approx((0.5, 1.5))
    # Twice the slots: twice the age.
    assert role_ages(_load(slots=128)) == pytest.approx((1.0, 3.0))
    # No valid design: the agents' quota is all pool plays, 160 + 8 * 80 = 800 s of slots.
    assert role_ages(_load(validity=0.0))[0] == pytest.approx(10.0 / (800.0 / 64.0))


def test_check_names_each_role_and_its_verdict():
    checks = check_bounds(_load(slots=256), 4, 8)
    assert [(c.role, c.key, c.verdict) for c in checks] == [
        ("agent", "async.agent_bound", Verdict.FREE),
        ("designer", "async.designer_bound", Verdict.TIGHT),
    ]


def _config(**sections) -> Config:
    return Config.model_validate(sections)


def test_lines_name_both_keys_with_their_numbers():
    config = _config(
        engine={"slots": 512}, sandbox={"workers": 4096}, **{"async": {"agent_bound": 1}}
    )
    agent, designer = bound_lines(config)
    assert "engine.slots=512" in agent
    assert "agent.groups_per_step=20" in agent
    assert "async.agent_bound=1 will throttle" in agent
    assert "async.designer_bound=8" in designer
    free = bound_lines(_config(engine={"slots": 4}))
    assert all("is free" in line for line in free)
    both = bound_lines(_config(engine={"slots": 4}, **{"async": {"staleness": 3}}))
    assert "async.staleness=3 (a bound of 6) is free" in both[1]
    assert bound_lines(_config(**{"async": {"staleness": 0}})) == [
        "staleness: both bounds are 0, the synchronous mode"
    ]


def test_what_can_be_in_flight_is_the_least_of_three_keys():
    config = Config()
    assert usable_slots(config) == config.sandbox.workers < config.engine.slots
    assert "sandbox.workers=32" in bound_lines(config)[0]
    few = _config(generator={"concurrent_tasks": 2, "count": 3})
    assert usable_slots(few) == 2 * few.agent.seeds_per_environment
    assert load_of(few).slots == 3 * usable_slots(few)
    assert "generator.concurrent_tasks=2, 48 over all generators" in bound_lines(few)[0]
