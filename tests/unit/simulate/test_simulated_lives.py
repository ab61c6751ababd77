"""The schedule in virtual time while generators and the learner die: random durations and instants.

A dead generator's tasks are issued again, to whoever is up. A dead learner comes back from its last
checkpoint: its batch is trained again, and the steps after the checkpoint with it.
"""

from __future__ import annotations

import random

import pytest

from spade_async.coordinator.schedule import Take, Wait
from spade_async.simulate.durations import Fixed, LogNormal
from spade_async.simulate.two_roles import TwoRoles, TwoRoleSetting
from spade_async.simulate.workload import DrawnWorkload
from spade_async.types import Role

STEPS = 40


class Perilous(TwoRoles):
    """Kills parts at random and keeps its own books of what was trained."""

    def __init__(
        self, setting: TwoRoleSetting, workload: DrawnWorkload, rng: random.Random, every: int
    ) -> None:
        super().__init__(setting, workload)
        self.rng, self.every = rng, every
        self.batches: list[list[str]] = []
        """Groups of every batch of the surviving history, in order."""
        self.undone: list[list[str]] = []
        """Batches to train again."""
        self.ages: list[tuple[Role, int]] = []
        self.lost: set[str] = set()
        self.deaths = self.deaths_since_step = 0
        self._wrap_schedule()
        self._strike_soon()

    def _wrap_schedule(self) -> None:
        schedule = self.schedule
        take, release, finished = schedule.take, schedule.release, schedule.step_finished

        def taking() -> Take | Wait:
            found = take()
            if isinstance(found, Take):
                self.batches.append([*found.designer, *found.agent])
                self.ages += [(Role.DESIGNER, schedule.age(name)) for name in found.designer]
                self.ages += [(Role.AGENT, schedule.age(name)) for name in found.agent]
            return found

        def releasing(group: str, num: int = 1) -> None:
            if group not in self.lost:
                release(group, num)

        def finishing(ordinal: int) -> None:
            finished(ordinal)
            self.deaths_since_step = 0

        schedule.take, schedule.release = taking, releasing  # type: ignore[method-assign]
        schedule.step_finished = finishing  # type: ignore[method-assign]

    def _mark_ready(self, group_id: str) -> None:
        if group_id not in self.lost:
            super()._mark_ready(group_id)

    def _strike_soon(self) -> None:
        self.timeline.after(self.rng.expovariate(1 / 25.0), self._strike)

    def _strike(self) -> None:
        self.deaths += 1
        self.deaths_since_step += 1
        assert self.deaths_since_step < 200, f"no step any more: {self.waits_for}"
        if self.rng.random() < 0.6:
            down_s = self.rng.uniform(0.0, 10.0)
            self.fleet.kill(self.rng.randrange(self._setting.generators), down_s)
            self.timeline.after(down_s, self._look)
        else:
            self._kill_learner()
        self._look()
        self._strike_soon()

    def _look(self) -> None:
        self._has_news = True

    def _kill_learner(self) -> None:
        """Undo what is in training and the steps after the newest checkpoint."""
        num_done = len(self.batches) - self._is_training
        kept = num_done - num_done % self.every
        self.undone = self.batches[kept:] + self.undone
        del self.batches[kept:]
        again = {name for batch in self.undone for name in batch}
        schedule = self.schedule
        rows = [row for row in schedule.snapshot() if row.group_id not in again]
        ordinal = schedule.learner_ordinal
        self.lost |= set(schedule.restore(ordinal, rows, num_replays=len(self.undone)))
        self._ready -= self.lost
        schedule.weights_loaded(ordinal)
        self._is_training = False

    def _take(self) -> None:
        if not self.undone:
            super()._take()
            return
        self.schedule.begin_replay()
        self.batches.append(self.undone.pop(0))
        self._train(9)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("validity", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("bounds", [(0, 0), (1, 2), (4, 8)], ids=str)
def test_bounds_hold_and_nothing_is_lost_whoever_dies(bounds, validity, every) -> None:
    for seed in range(4):
        rng = random.Random(f"{bounds} {validity} {every} {seed}")
        setting = TwoRoleSetting(
            agent_bound=bounds[0], designer_bound=bounds[1], agent_quota=8, designer_quota=2,
            group_size=4, pool_share=0.25, slots=rng.choice([8, 32]),
            generators=rng.choice([1, 3]), credit=rng.choice([4, 64]),
            most_sequences=rng.choice([None, 40]), latency_s=rng.choice([0.0, 0.5]),
        )  # fmt: skip
        delays = [
            LogNormal.of_mean(
                mean_s,
                1.0,
            )
            for mean_s in (4.0, 2.0, 3.0, 0.5)
        ]
        work = DrawnWorkload(
            seed=seed, designs=delays[0], episodes=delays[1], learner=delays[2], swap=delays[3],
            validity=validity, episodes_per_arm=4,
        )  # fmt: skip
        run = Perilous(setting, work, rng, every)
        result = run.run(STEPS)
        assert run.deaths > 3
        assert result.num_discarded == 0
        trained = [name for batch in run.batches for name in batch]
        assert len(trained) == len(set(trained)), "trained twice in the surviving history"
        for role, age in run.ages:
            assert 0 <= age <= bounds[role is Role.DESIGNER]
        if every == 1:
            assert not run.lost, "every step has its checkpoint: a fall-back loses nothing"


def test_a_dead_generators_finished_pieces_are_not_done_again() -> None:
    setting = TwoRoleSetting(
        agent_bound=1, designer_bound=2, agent_quota=4, designer_quota=1, group_size=2,
        pool_share=0.25, slots=64,
    )  # fmt: skip
    work = DrawnWorkload(
        seed=1, designs=Fixed(1.0), episodes=Fixed(10.0), learner=Fixed(1.0), validity=0.0
    )
    run = TwoRoles(setting, work)
    run.timeline.after(5.0, lambda: run.fleet.kill(0, 2.0))
    run.timeline.after(7.5, run._let_out)
    run.run(1)
    # Designs were in before; pool plays of 10 s begin again at 7.5 s, and the step follows.
    assert run.step_ends_s == [18.5]
