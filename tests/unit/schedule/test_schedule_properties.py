"""The theorem of `schedule.py`, in random worlds: bounds, waste, progress, synchrony, ceilings."""

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schedule_world import Setup, World, run

ORDERS = ("random", "slow_learner", "slow_generator", "lazy_load", "oldest_last")

SETUPS = [
    s
    for s in (
        Setup(agent_bound, designer_bound, *sizes)
        for agent_bound, designer_bound in ((0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (4, 8), (8, 8))
        for sizes in (
            (1, 1, 1, 0.0),
            (2, 1, 2, 0.5),
            (3, 1, 4, 0.25),
            (4, 2, 4, 0.0),
            (8, 2, 4, 0.25),
            (20, 2, 8, 0.25),
            (5, 3, 8, 0.4),
        )
    )
    if s.is_legal
]

slow_checks = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

worlds = st.builds(
    lambda setup, seed, validity, deaths, has_pool: World(
        setup, random.Random(seed), validity=validity, deaths=deaths, has_pool=has_pool
    ),
    st.sampled_from(SETUPS),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.1, 0.5, 0.8, 1.0]),
    st.sampled_from([0.0, 0.0, 0.05, 0.5]),
    st.booleans(),
)


@slow_checks
@given(worlds, st.sampled_from(ORDERS))
def test_no_group_is_over_its_bound_none_is_lost_and_nobody_waits_for_ever(world, order):
    run(world, 12, pick=order, max_events=20_000)
    world.check_ages()
    world.check_nothing_lost()


@slow_checks
@given(worlds, st.sampled_from(ORDERS), st.integers(0, 2**32), st.booleans())
def test_whatever_the_limits_nobody_waits_for_ever(world, order, seed, changing):
    world.limits = random.Random(seed)
    world.coordinate()
    if not changing:
        world.limits = None
    run(world, 12, pick=order, max_events=20_000)
    world.check_ages()
    world.check_nothing_lost()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("validity", [0.0, 0.5, 1.0])
def test_bound_zero_is_exactly_synchronous(order, validity):
    setup = Setup(0, 0, 20, 2, 8, 0.2)
    world = World(setup, random.Random(3), validity=validity, deaths=0.0, has_pool=True)
    run(world, 15, pick=order)
    assert all(t.birth == t.step for t in world.trained)
    # Two designer groups, the places of valid designs, and the pool for the rest.
    assert all(step == (2, 20) for step in world.steps)


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_every_setup_makes_progress_whatever_the_validity(setup):
    for validity in (0.0, 1.0):
        for has_pool in (False, True):
            rng = random.Random(1)
            world = World(setup, rng, validity=validity, deaths=0.0, has_pool=has_pool)
            run(world, 8, pick="random", max_events=20_000)
            world.check_ages()


def test_with_no_valid_design_the_pool_fills_the_agents_quota():
    setup = Setup(4, 8, 20, 2, 8, 0.25)
    world = World(setup, random.Random(5), validity=0.0, deaths=0.0, has_pool=True)
    run(world, 60, pick="random")
    assert all(agents == 20 for _, agents in world.steps[20:])


def test_with_no_valid_design_and_no_pool_steps_train_designers_alone():
    setup = Setup(4, 8, 20, 2, 8, 0.25)
    world = World(setup, random.Random(5), validity=0.0, deaths=0.0, has_pool=False)
    run(world, 30, pick="random")
    assert {agents for _, agents in world.steps} == {0}
    assert all(designers == 2 for designers, _ in world.steps)


def test_pool_plays_never_starve_designs_of_their_places():
    # Fewer designed places per step than a group needs: the pool must not eat each place set free.
    setup = Setup(3, 3, 4, 1, 8, 0.25)
    world = World(setup, random.Random(7), validity=1.0, deaths=0.0, has_pool=True)
    run(world, 200, pick="random")
    num_designers = sum(designers for designers, _ in world.steps)
    # 3 designed places a step carry a group of 8 every 8/3 steps: 75 groups in 200 steps.
    assert num_designers >= 60


def test_quotas_fill_in_steady_state():
    setup = Setup(4, 8, 20, 2, 8, 0.25)
    world = World(setup, random.Random(9), validity=0.9, deaths=0.0, has_pool=True)
    run(world, 60, pick="slow_learner")
    assert all(step == (2, 20) for step in world.steps[10:])


def test_work_between_two_takes_is_bounded_even_when_every_group_dies_but_one():
    # Pool plays that always die must not be admitted for ever while designs wait to be trained.
    setup = Setup(1, 1, 4, 1, 2, 0.5)
    world = World(setup, random.Random(11), validity=0.0, deaths=0.0, has_pool=True)
    world.coordinate()
    for _ in range(2000):
        events = world.events()
        world.deaths = 0.0
        event = world.rng.choice(events)
        if event[0] == "play":
            world.deaths = 1.0
        world.happen(event)
        world.coordinate()
        if world.step >= 20:
            break
    assert world.step >= 20
    assert all(agents == 0 for _, agents in world.steps)


@slow_checks
@given(worlds, st.sampled_from(ORDERS), st.integers(1, 300))
def test_a_restored_snapshot_goes_on_within_the_bounds(world, order, num_events):
    world.coordinate()
    for _ in range(num_events):
        world.happen(world.rng.choice(world.events()))
        world.coordinate()
    snapshot = world.schedule.snapshot()
    restored = world.setup.schedule()
    restored.pool_has_work = world.has_pool
    assert restored.restore(world.step, snapshot) == []
    assert set(restored.snapshot()) == {*snapshot}
    # The batch in training was not reported: it is ready again, and not yet trained.
    for group in world.in_training or []:
        world.trained = [t for t in world.trained if t.group_id != group]
    if world.in_training is not None:
        world.steps.pop()
    world.has_batch_back = world.in_training is not None
    world.in_training = None
    world.schedule = restored
    world.loaded = world.step - 1
    run(world, world.step + 10, pick=order, max_events=20_000)
    world.check_ages()
    world.check_nothing_lost()


@slow_checks
@given(worlds, st.integers(1, 300))
def test_a_planned_batch_that_is_sent_again_keeps_its_places(world, num_events):
    world.coordinate()
    for _ in range(num_events):
        world.happen(world.rng.choice(world.events()))
        world.coordinate()
    if world.in_training is None:
        return
    batch = set(world.in_training)
    rows = [row for row in world.schedule.snapshot() if row.group_id not in batch]
    restored = world.setup.schedule()
    restored.pool_has_work = world.has_pool
    assert restored.restore(world.step, rows, num_replays=1) == []
    world.schedule = restored
    restored.weights_loaded(world.step)
    world.loaded = world.step
    world.coordinate()
    restored.begin_replay()
    run(world, world.step + 6, pick="random", max_events=20_000)
    world.check_ages()


@slow_checks
@given(worlds, st.sampled_from(ORDERS))
def test_a_take_that_waits_for_full_bounds_keeps_the_theorem(world, order):
    full = World(
        replace(world.setup, fill=True), world.rng, validity=world.validity, deaths=world.deaths,
        has_pool=world.has_pool,
    )  # fmt: skip
    run(full, 8, pick=order, max_events=20_000)
    full.check_ages()
    full.check_nothing_lost()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("bound", [0, 1, 4, 16])
def test_full_bounds_make_samples_as_old_as_the_bound(bound, order):
    setup = Setup(bound, bound, 25, 5, 4, 0.2, fill=True)
    world = World(setup, random.Random(1), validity=1.0, deaths=0.0, has_pool=True)
    run(world, 2 * bound + 6, pick=order)
    assert world.steps == [(5, 25)] * len(world.steps)
    late = [t for t in world.trained if t.step >= bound]
    # A lazy generator skips versions: what it makes at the next one is younger.
    slack = 3 if order == "lazy_load" else 1
    assert all(bound - slack <= t.step - t.birth <= bound for t in late)
    assert sum(t.step - t.birth for t in late) / len(late) >= 0.9 * bound
    for step in range(len(world.steps)):
        pool = sum(t.step == step and t.group_id[0] == "m" for t in world.trained)
        assert 4 <= pool <= 6, "a step has its share of pool plays"
