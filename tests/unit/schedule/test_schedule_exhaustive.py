"""Every reachable state of tiny schedules, whatever order things happen in: nobody waits for ever.

Designs turn out valid or not, groups finish or die, versions load late or at once, steps end at any
moment. States are compared up to names and up to a shift of the version numbers.
"""

import copy

import pytest
from schedule_world import Setup, World

MAX_STATES = 2000
"""A rule that loops without end shows itself by more."""


class Fate:
    """Stands where the random numbers were: each draw has one answer."""

    def __init__(self, *, is_lucky: bool) -> None:
        self.is_lucky = is_lucky

    def random(self) -> float:
        return 0.25 if self.is_lucky else 0.75

    def randint(self, low: int, high: int) -> int:
        return high if self.is_lucky else low


def key(world: World) -> tuple:
    """The state without names and without the past."""
    step = world.step

    def age(group: str) -> int:
        return step - world.births[group]

    designs = tuple(
        sorted(
            (age(d.group_id), d.writing, d.waiting, tuple(sorted(map(age, d.playing))))
            for d in world.designs.values()
        )
    )
    pool = tuple(sorted(age(play) for play, parent in world.plays.items() if parent is None))
    orphans = tuple(
        sorted(age(p) for p, d in world.plays.items() if d is not None and d not in world.designs)
    )
    ready = tuple(
        tuple((age(g), g[0]) for g in world.waiting_ready(role)) for role in ("designer", "agent")
    )
    dropped = tuple(sorted(world.schedule._places.num_dropped.items()))
    lag = step - world.loaded
    return designs, pool, orphans, ready, dropped, lag, world.in_training is not None


def forget(world: World) -> None:
    """Check what was trained, then drop it: the past does not matter to the rule."""
    world.check_ages()
    done = {t.group_id for t in world.trained} - set(world.in_training or [])
    world.trained = [t for t in world.trained if t.group_id not in done]
    world.finished -= done
    world.admitted -= done | world.dropped
    world.dropped.clear()
    world.steps.clear()
    live = world.admitted
    world.births = {g: b for g, b in world.births.items() if g in live}


def explore(setup: Setup, *, has_pool: bool, deaths: bool) -> tuple[int, bool]:
    """Breadth first over all events and all fates. Returns (states seen, whether that was all)."""
    start = World(
        setup, Fate(is_lucky=True), validity=0.5, deaths=0.5 if deaths else 0.0, has_pool=has_pool
    )
    start.coordinate()
    seen = {key(start)}
    frontier = [start]
    while frontier:
        following = []
        for world in frontier:
            events = world.events()
            assert events, f"everyone waits: {world.last_wait} in {key(world)}"
            for event in events:
                for is_lucky in (True, False):
                    after = copy.deepcopy(world)
                    after.rng = Fate(is_lucky=is_lucky)
                    if deaths and not is_lucky and event[0] == "write":
                        after.deaths = 0.0
                    elif deaths:
                        # random() < deaths: the lucky draw is 0.25, the other 0.75.
                        after.deaths = 0.0 if is_lucky else 1.0
                    after.happen(event)
                    after.coordinate()
                    forget(after)
                    found = key(after)
                    if found not in seen:
                        seen.add(found)
                        following.append(after)
            if len(seen) > MAX_STATES:
                return len(seen), False
        frontier = following
    return len(seen), True


@pytest.mark.parametrize(
    ("setup", "has_pool", "deaths"),
    [
        (Setup(0, 0, 2, 1, 2, 0.0), False, True),
        (Setup(0, 0, 3, 1, 2, 0.34), True, True),
        (Setup(0, 1, 2, 1, 2, 0.0), False, True),
        (Setup(0, 2, 2, 1, 1, 0.5), True, True),
        (Setup(1, 0, 1, 1, 2, 0.0), False, True),
        (Setup(1, 1, 1, 1, 2, 0.0), False, True),
        (Setup(1, 1, 2, 1, 1, 0.5), True, False),
        (Setup(1, 1, 2, 1, 3, 0.0), False, False),
        (Setup(1, 2, 1, 1, 1, 0.0), False, True),
        (Setup(2, 1, 1, 1, 2, 0.0), True, True),
    ],
    ids=str,
)
def test_in_no_reachable_state_does_everyone_wait(setup, has_pool, deaths):
    num_states, is_complete = explore(setup, has_pool=has_pool, deaths=deaths)
    assert num_states > 8
    assert is_complete
