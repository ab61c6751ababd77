"""Designs that are paid after k learner steps: no barrier, no age over the bound, no standstill."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schedule_world import Design, Setup, World, run

from spade_async.coordinator.schedule import Schedule, Wait, WaitReason
from spade_async.coordinator.schedule_lane import Group, Lane
from spade_async.types import Role


class DelayedWorld(World):
    """A coordinator that holds played designs and plays them again at each new version."""

    def __init__(self, setup: Setup, rng: random.Random, *, delay: int, **more: object) -> None:
        super().__init__(setup, rng, **more)  # type: ignore[arg-type]
        self.delay = delay
        self.schedule = Schedule(
            agent_bound=setup.agent_bound,
            designer_bound=setup.designer_bound,
            agent_quota=setup.agent_quota,
            designer_quota=setup.designer_quota,
            group_size=setup.group_size,
            pool_share=setup.pool_share,
            designer_delay=delay,
        )
        self.schedule.pool_has_work = self.has_pool
        self.num_valid: Counter[str] = Counter()
        self.first: dict[str, int] = {}
        """Birth of the last first play of a group."""
        self.held: dict[str, Design] = {}
        self.replays: dict[str, set[str]] = {}
        self.begun: set[tuple[str, int]] = set()
        self.early: set[str] = set()
        """Paid before their time: nothing was played, or nothing else could come."""
        self.max_held = 0
        self.paid_early = False

    def coordinate(self) -> None:
        for name in list(self.held):
            is_time = self.step >= self.first[name] + self.delay
            if is_time and not self.replays[name]:
                self._pay(name)
        for name in self.held:
            offset = self.loaded - self.first[name]
            for index in range(self.num_valid[name]):
                key = (f"{name}.{index}", offset)
                if not 0 < offset < self.delay or key in self.begun:
                    continue
                if not self.schedule.can_admit_replay():
                    break
                play = self._name("r")
                self._note(play, self.schedule.admit_replay(play))
                self.plays[play] = name
                self.replays[name].add(play)
                self.begun.add(key)
        self.max_held = max(self.max_held, len(self.held))
        coming = self.step + (self.in_training is not None)
        self.schedule.expect_replays(
            sum(self.num_valid[n] for n in self.held if 0 < coming - self.first[n] < self.delay)
        )
        super().coordinate()
        while self.paid_early:
            # The place that it gave may let in another design, which the take waits for.
            self.paid_early = False
            super().coordinate()

    def _take(self) -> None:
        if self.in_training is None:
            found = self.schedule.take()
            while isinstance(found, Wait) and found.reason is WaitReason.HELD:
                assert found.waits_for is not None
                self.early.add(found.waits_for)
                self._pay(found.waits_for)
                self.paid_early = True
                found = self.schedule.take()
            self.schedule.take = lambda: found  # type: ignore[method-assign]
            try:
                super()._take()
            finally:
                del self.schedule.take

    def _written(self, design: Design, *, is_valid: bool) -> None:
        self.num_valid[design.group_id] += is_valid
        super()._written(design, is_valid=is_valid)

    def _played(self, play: str, *, is_dead: bool) -> None:
        parent = self.plays[play]
        if play[0] != "r":
            if parent is not None:
                self.first[parent] = max(self.births[play], self.first.get(parent, 0))
            super()._played(play, is_dead=is_dead)
            return
        del self.plays[play]
        self._end(play, is_dead=is_dead)
        self.replays.get(parent or "", set()).discard(play)

    def _close(self, design: Design) -> None:
        if design.writing or design.waiting or design.playing:
            return
        del self.designs[design.group_id]
        if self.num_valid[design.group_id]:
            self.held[design.group_id] = design
            self.replays[design.group_id] = set()
            self.schedule.hold(design.group_id)
        else:
            self.early.add(design.group_id)
            self._end(design.group_id, is_dead=False)

    def _pay(self, name: str) -> None:
        del self.held[name]
        self._end(name, is_dead=self.rng.random() < self.deaths)

    def check_delays(self) -> None:
        for t in self.trained:
            if t.role == "designer" and t.group_id not in self.early:
                assert t.step - t.birth >= self.delay


SETUPS = [
    (delay, setup)
    for delay, setup in (
        (delay, Setup(agent_bound, delay + slack, *sizes))
        for delay in (1, 2, 4)
        for slack in (1, 3)
        for agent_bound in (0, 1, 4)
        for sizes in (
            (1, 1, 1, 0.0),
            (2, 1, 2, 0.5),
            (4, 2, 4, 0.0),
            (8, 2, 4, 0.25),
            (20, 2, 8, 0.25),
        )
    )
    if setup.is_legal
]

worlds = st.builds(
    lambda setup, seed, validity, deaths, has_pool: DelayedWorld(
        setup[1],
        random.Random(seed),
        delay=setup[0],
        validity=validity,
        deaths=deaths,
        has_pool=has_pool,
    ),
    st.sampled_from(SETUPS),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.sampled_from([0.0, 0.0, 0.05, 0.5]),
    st.booleans(),
)
ORDERS = ("random", "slow_learner", "slow_generator", "lazy_load", "oldest_last")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds, st.sampled_from(ORDERS), st.booleans())
def test_held_designs_stop_nobody_and_are_trained_within_the_bound(world, order, limited):
    if limited:
        world.limits = random.Random(1)
    run(world, 14, pick=order, max_events=20_000)
    world.check_ages()
    world.check_delays()
    world.check_nothing_lost()


@pytest.mark.parametrize("order", ORDERS)
def test_several_pools_are_in_play_at_once_and_each_step_trains(order):
    setup = Setup(4, 8, 20, 1, 4, 0.25)
    world = DelayedWorld(setup, random.Random(5), delay=4, validity=1.0, deaths=0.0, has_pool=True)
    run(world, 40, pick=order)
    world.check_ages()
    world.check_delays()
    # Of 15 places for designs at most 12 are filled: three groups are in play.
    assert 2 <= world.max_held <= 3
    # Weights that load last of all leave steps to the designs that are due.
    assert sum(agents > 0 for _, agents in world.steps) >= (15 if order == "lazy_load" else 30)
    if order == "slow_learner":
        # Generators keep up: nothing is paid early, each design is played at each version.
        assert not world.early
        assert {offset for _, offset in world.begun} == {1, 2, 3}
        assert len(world.begun) >= 0.9 * sum(3 * n for n in world.num_valid.values())
        assert sum(designs for designs, _ in world.steps) >= 0.9 * 3 / 4 * 40


def test_admission_counts_only_the_steps_that_can_take_a_group():
    # Bound 3, delay 2, one per step: what is born at 0 can be taken at 2 and 3 only.
    lane = Lane(Role.DESIGNER, bound=3, quota=1, delay=2)
    assert lane.room(0, 0) == 2
    lane.add(Group("a", 0))
    lane.add(Group("b", 0))
    assert lane.room(0, 0) == 0
    # Born at 1: the steps 3 and 4, of which the two before need 2 and 3.
    assert lane.room(1, 1) == 1
    lane.add(Group("c", 1))
    assert lane.room(1, 1) == 0
    # Without a delay the same lane has four places from the start.
    assert Lane(Role.DESIGNER, bound=3, quota=1).room(0, 0) == 4


def test_a_restored_schedule_still_holds_what_was_held():
    schedule = Schedule(
        agent_bound=1, designer_bound=4, agent_quota=4, designer_quota=1, group_size=2,
        pool_share=0.0, designer_delay=3,
    )  # fmt: skip
    schedule.weights_loaded(0)
    schedule.admit_design("d1")
    schedule.release("d1")
    schedule.start_play("d1", "p1")
    schedule.ready("p1")
    schedule.hold("d1")
    rows = schedule.snapshot()
    again = Schedule(
        agent_bound=1, designer_bound=4, agent_quota=4, designer_quota=1, group_size=2,
        pool_share=0.0, designer_delay=3,
    )  # fmt: skip
    assert again.restore(0, rows) == []
    assert again.snapshot() == rows
    assert again.counts()["designer_held"] == 1


@pytest.mark.parametrize("validity", [1.0, 0.5])
def test_a_step_with_designs_that_are_due_waits_for_the_plays_of_new_ones(validity):
    # Synchronous, and fewer places for designs than a step has: without the wait, each batch of due
    # designs would be a step of its own while the next one is being written.
    setup = Setup(0, 4, 8, 2, 2, 0.0)
    world = DelayedWorld(
        setup, random.Random(3), delay=2, validity=validity, deaths=0.0, has_pool=False
    )
    run(world, 40, pick="slow_generator")
    world.check_ages()
    world.check_nothing_lost()
    assert sum(designs for designs, _ in world.steps) >= 20
    alone = sum(agents == 0 for _, agents in world.steps)
    assert alone <= (0 if validity == 1.0 else 4)
