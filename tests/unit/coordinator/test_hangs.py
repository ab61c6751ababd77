"""What is a hang and what is not, second by second."""

from __future__ import annotations

import pytest

from spade_async.config.supervisor import SupervisorConfig
from spade_async.coordinator.hangs import Hangs

LIMITS = SupervisorConfig(
    silent_s=10, starting_s=100, loading_weights_s=40, working_s=30, stalled_s=200
)


class World:
    """A clock that asks once a second, as the coordinator does."""

    def __init__(self, *names: str) -> None:
        self.now_s = 0.0
        self.hangs = Hangs(LIMITS, names, now_s=0.0)

    def run(self, until_s: float, beats: dict[str, tuple[str, int]]) -> list[tuple[str, str]]:
        """Go on to that second with these heartbeats; what hangs then."""
        found = []
        while self.now_s < until_s:
            self.now_s += 1.0
            for name, (state, progress) in beats.items():
                self.hangs.beat(name, state, progress, self.now_s)
            found = self.hangs.found(self.now_s)
        return [(hung.name, hung.state) for hung in found]


@pytest.mark.parametrize(
    ("state", "limit_s"),
    [("starting", 100), ("working", 30), ("loading_weights", 40), ("idle", None),
     ("disk_full", None), ("stopping", None)],
)  # fmt: skip
def test_each_state_has_its_limit_of_time_without_progress(state: str, limit_s: int | None) -> None:
    world = World("gen-0", "learner")
    moving = 0

    def beats() -> dict[str, tuple[str, int]]:
        return {"gen-0": (state, 7), "learner": ("working", moving)}

    end_s = limit_s or 180
    for second in range(1, end_s + 2):
        moving += 1
        assert world.run(second, beats()) == []
    moving += 1
    expected = [] if limit_s is None else [("gen-0", state)]
    assert world.run(end_s + 2, beats()) == expected


def test_one_missed_heartbeat_is_no_hang_and_ten_seconds_of_silence_are() -> None:
    world = World("gen-0")
    world.run(5, {"gen-0": ("working", 1)})
    assert world.run(7, {}) == []
    world.run(8, {"gen-0": ("working", 2)})
    assert world.run(18, {}) == []
    assert world.run(19, {}) == [("gen-0", "silent")]


def test_part_that_never_spoke_has_the_time_of_a_start() -> None:
    world = World("learner")
    assert world.run(100, {}) == []
    assert world.run(101, {}) == [("learner", "starting")]


def test_dead_part_does_not_hang_and_its_successor_has_time_to_start() -> None:
    world = World("gen-0", "gen-1")
    other = {"gen-1": ("idle", 1)}
    world.run(5, other | {"gen-0": ("working", 1)})
    world.hangs.died("gen-0")
    assert [name for name, _ in world.run(34, other)] == []
    world.hangs.expect("gen-0", world.now_s)
    other = {"gen-1": ("idle", 2)}
    assert world.run(60, other) == []


def test_pause_of_the_coordinator_is_nobodys_hang() -> None:
    world = World("gen-0")
    world.run(5, {"gen-0": ("working", 1)})
    world.now_s += 1000.0
    assert world.hangs.found(world.now_s) == []
    assert world.run(world.now_s + 9, {}) == []
    assert world.run(world.now_s + 2, {}) == [("gen-0", "silent")]


def test_run_in_which_everybody_waits_hangs_as_a_whole() -> None:
    world = World("gen-0", "learner")
    idle = {"gen-0": ("idle", 3), "learner": ("idle", 3)}
    assert world.run(201, idle) == []
    assert world.run(203, idle) == [("gen-0", "stalled"), ("learner", "stalled")]
