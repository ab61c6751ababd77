"""The in-flight controller: its rules one by one, its range, and how near the best it comes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inflight_model import Load, simulate
from schedule_world import Setup

from spade_async.coordinator.inflight import (
    SPARE,
    EngineFit,
    InFlightController,
    RoleSeen,
    StepSeen,
)


def controller(cap=100, agent_quota=8, most_agents=40, designer_quota=4, most_designs=36):
    return InFlightController(
        most_sequences=cap,
        agent_quota=agent_quota,
        most_agents=most_agents,
        designer_quota=designer_quota,
        most_designs=most_designs,
    )


def seen(idle=0.0, agent=(8, 0, False), designer=(4, 0, False), active=None, rate=None):
    return StepSeen(
        learner_idle_share=idle,
        agent=RoleSeen(taken=agent[0], left=agent[1], held=agent[2]),
        designer=RoleSeen(taken=designer[0], left=designer[1], held=designer[2]),
        active=active,
        tokens_per_s=rate,
        in_flight=active,
    )


def test_it_starts_with_all_that_the_bound_allows():
    limits = controller().limits
    assert (limits.sequences, limits.agents, limits.designs) == (100, 40, 36)


def test_what_lies_ready_behind_every_take_is_taken_off_half_by_half():
    it = controller()
    for _ in range(2):
        assert it.step(seen(agent=(8, 20, False))).agents == 40
    # 20 ready, of which half a quota (4) is wanted: 16 to spare.
    assert it.step(seen(agent=(8, 20, False))).agents == 32
    assert "agent groups lay ready unused, limit 40 -> 32" in it.limits.reason
    for _ in range(100):
        it.step(seen(agent=(8, 20, False)))
    assert it.limits.agents == 8, "never below a step's quota"


def test_half_a_quota_may_lie_ready():
    it = controller()
    for _ in range(20):
        it.step(seen(agent=(8, int(SPARE * 8), False)))
    assert it.limits.agents == 40


def test_a_learner_that_waits_gets_more_only_if_the_limit_held_work_back():
    it = controller()
    for _ in range(200):
        it.step(seen(agent=(8, 20, False), designer=(4, 20, False)))
    assert it.step(seen(idle=0.5, agent=(8, 0, False))).agents == 8
    # By half of itself, for the learner waits half of the time.
    assert it.step(seen(idle=0.5, agent=(8, 0, True))).agents == 12
    for _ in range(20):
        it.step(seen(idle=0.5, agent=(8, 0, True)))
    assert it.limits.agents == 40, "the bound's places are the most"


def test_nothing_is_taken_off_while_the_learner_waits():
    it = controller()
    for _ in range(20):
        it.step(seen(idle=0.3, agent=(8, 20, False)))
    assert it.limits.agents == 40


def test_what_always_waits_for_a_generator_is_taken_off_also_while_the_learner_waits():
    it = controller()
    busy = replace(seen(idle=0.5), agent=RoleSeen(taken=8, left=0, held=False, queued=12))
    for _ in range(2):
        assert it.step(busy).agents == 40
    # 12 wait at any time, of which a quarter of a quota (2) may: 10 to spare.
    assert it.step(busy).agents == 35
    assert "always waited for a generator, limit 40 -> 35" in it.limits.reason
    for _ in range(100):
        it.step(busy)
    assert it.limits.agents == 8


def test_designs_grow_when_a_step_goes_short_of_them():
    it = controller()
    for _ in range(200):
        it.step(seen(designer=(4, 20, False)))
    assert it.limits.designs == 4
    assert it.step(seen(designer=(2, 0, True))).designs == 5
    assert it.step(seen(designer=(4, 0, True))).designs == 5, "the step had its designs"


def test_the_fewest_sequences_that_saturate_an_engine():
    fit = EngineFit(12)
    for n in (10, 20, 40, 80):
        fit.add(n, n / (0.01 + 0.0005 * n))
    found = fit.enough(100)
    # n / (a + b n) = 0.98 * 100 / (a + 100 b) by hand: rate 1633.3, n = 16.333 / 0.18333.
    assert found == pytest.approx(89.09, abs=0.01)
    assert found / (0.01 + 0.0005 * found) == pytest.approx(0.98 * 100 / 0.06)


def test_an_engine_is_not_judged_by_one_number_of_requests():
    fit = EngineFit(12)
    for _ in range(10):
        fit.add(50, 1000)
    assert fit.enough(100) is None


def test_another_load_starts_the_fit_anew():
    fit = EngineFit(12)
    for n in (10, 20, 40, 80):
        fit.add(n, n / 0.01)
    assert fit.enough(100) == pytest.approx(98.0)
    fit.add(80, 80 / 0.04)
    assert fit.enough(100) is None


shares = st.one_of(st.none(), st.floats(0, 1))
roles = st.tuples(st.integers(0, 50), st.integers(0, 500), st.booleans())
rates = st.one_of(st.none(), st.floats(0, 1e6))


@given(st.lists(st.tuples(shares, roles, roles, rates, rates), max_size=40), st.integers(1, 500))
def test_limits_stay_between_what_a_step_needs_and_what_the_bound_allows(steps, cap):
    it = controller(cap=cap)
    for idle, agent, designer, active, rate in steps:
        limits = it.step(seen(idle, agent, designer, active, rate))
        assert 1 <= limits.sequences <= cap
        assert 8 <= limits.agents <= 40
        assert 4 <= limits.designs <= 36
        assert limits.reason


LOADS = {
    # The learner takes 8 s a step. Before the change it is the limit, after it nobody or both.
    "delays": Load(Setup(8, 16, 8, 2, 4, 0.25), learner_s=8.0, cap=256),
    "shared engine": Load(
        Setup(8, 16, 8, 2, 4, 0.25), learner_s=8.0, per_sequence_s=0.0002, cap=256
    ),
    "bound 0": Load(Setup(0, 0, 8, 2, 2, 0.25), learner_s=4.0, per_sequence_s=0.0001),
}
STEPS, CHANGE = 200, 100


def four_times_longer(step, load):
    if step == CHANGE:
        load.tokens *= 4


def rates_of(load, limit, seeds=(1, 2)):
    """Mean steps/s before and after the change (settled), over the seeds."""
    before = after = 0.0
    for seed in seeds:
        fresh = Load(**vars(load))
        found = simulate(fresh, STEPS, limit=limit, seed=seed, change=four_times_longer)
        before += found.rate(20, CHANGE - 1) / len(seeds)
        after += found.rate(CHANGE + 15, STEPS - 1) / len(seeds)
        for role, bound in (
            ("agent", load.setup.agent_bound),
            ("designer", load.setup.designer_bound),
        ):
            assert max(found.ages[role]) <= bound
    return before, after


@pytest.mark.parametrize("name", LOADS)
def test_within_5_percent_of_the_best_static_limit_before_and_after_a_fourfold_length(name):
    load = LOADS[name]
    static = [rates_of(load, limit) for limit in (16, 64, load.cap)]
    chosen = rates_of(load, None)
    for moment in (0, 1):
        best = max(rates[moment] for rates in static)
        assert chosen[moment] >= 0.95 * best, (name, moment, chosen, static)


@pytest.mark.timeout(300)
def test_a_small_shared_engine_is_within_5_percent_of_the_best_static_limit_too():
    """Where steps are few and long chance is larger: 2 % of a mean of eight, so it takes eight."""
    load = Load(Setup(4, 8, 8, 2, 4, 0.25), learner_s=4.0, per_sequence_s=0.0002, cap=128)
    seeds = range(1, 9)
    static = [rates_of(load, limit, seeds) for limit in (32, 64, load.cap)]
    chosen = rates_of(load, None, seeds)
    for moment in (0, 1):
        best = max(rates[moment] for rates in static)
        assert chosen[moment] >= 0.95 * best, (moment, chosen, static)


def test_at_the_same_speed_samples_are_far_fresher_when_the_learner_is_the_limit():
    load = LOADS["delays"]
    ages = []
    for limit in (load.cap, None):
        found = simulate(Load(**vars(load)), 100, limit=limit)
        agent = found.ages["agent"][400:]
        ages.append(sum(agent) / len(agent))
    assert ages[0] > 7.5, "without the controller the queue fills the bound"
    assert ages[1] < 3.0
