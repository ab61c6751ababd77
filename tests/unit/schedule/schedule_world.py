"""A world around `Schedule` for tests: generators, a learner and a coordinator, without a clock.

Every event that could happen next is in `World.events()`; a test picks one by whatever order it
likes. The world checks each claim of the rule by its own bookkeeping, never by the schedule's.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from spade_async.coordinator.schedule import Schedule, Take, Wait


@dataclass(frozen=True)
class Setup:
    """Parameters of a schedule."""

    agent_bound: int
    designer_bound: int
    agent_quota: int
    designer_quota: int
    group_size: int
    pool_share: float
    fill: bool = False

    def schedule(self) -> Schedule:
        return Schedule(
            agent_bound=self.agent_bound,
            designer_bound=self.designer_bound,
            agent_quota=self.agent_quota,
            designer_quota=self.designer_quota,
            group_size=self.group_size,
            pool_share=self.pool_share,
            fill=self.fill,
        )

    @property
    def is_legal(self) -> bool:
        pool = round(self.agent_quota * self.pool_share)
        return (self.agent_bound + 1) * (self.agent_quota - pool) >= self.group_size


@dataclass
class Design:
    """A designer group as the coordinator sees it."""

    group_id: str
    birth: int
    writing: int
    """Designs still being written."""
    waiting: int = 0
    """Valid designs that have no place yet."""
    playing: set[str] = field(default_factory=set)


@dataclass
class Trained:
    role: str
    group_id: str
    birth: int
    step: int


class World:
    """One run. `validity` and `deaths` are probabilities per design and per group."""

    def __init__(
        self, setup: Setup, rng: random.Random, *, validity: float, deaths: float, has_pool: bool
    ) -> None:
        self.setup = setup
        self.rng = rng
        self.validity = validity
        self.deaths = deaths
        self.schedule = setup.schedule()
        self.schedule.pool_has_work = has_pool
        self.has_pool = has_pool
        self.designs: dict[str, Design] = {}
        self.plays: dict[str, str | None] = {}
        """Running play group -> its design group, None for pool plays."""
        self.births: dict[str, int] = {}
        self.step = 0
        self.loaded = -1
        self.in_training: list[str] | None = None
        self.admitted: set[str] = set()
        self.finished: set[str] = set()
        self.dropped: set[str] = set()
        self.trained: list[Trained] = []
        self.steps: list[tuple[int, int]] = []
        """(designer groups, agent groups) of every step."""
        self.last_wait: Wait | None = None
        self.has_batch_back = False
        self._number = 0
        self.limits: random.Random | None = None
        """Draws new limits below the bound at every turn, as a controller out of its mind."""

    # The coordinator: does whatever it may, designs first, oldest design first ----------------

    def coordinate(self) -> None:
        """Start plays, admit designs and pool plays, then ask for a batch."""
        schedule = self.schedule
        if self.limits is not None:
            agents, designs = (self.limits.choice((0, 1, 3, 10, 1000)) for _ in range(2))
            schedule.limit(agents=agents, designs=designs)
        for design in sorted(self.designs.values(), key=lambda d: int(d.group_id[1:])):
            while design.waiting and schedule.can_start_play(design.group_id):
                play = self._name("p")
                self._note(play, schedule.start_play(design.group_id, play))
                design.waiting -= 1
                design.playing.add(play)
                self.plays[play] = design.group_id
        while schedule.can_admit_design():
            group = self._name("d")
            birth = schedule.admit_design(group)
            self._note(group, birth)
            self.designs[group] = Design(group, birth, self.setup.group_size)
        while self.has_pool and schedule.can_admit_pool():
            play = self._name("m")
            self._note(play, schedule.admit_pool(play))
            self.plays[play] = None
        self.check_capacity()
        if self.in_training is None:
            self._take()

    def _take(self) -> None:
        take = self.schedule.take()
        if isinstance(take, Wait):
            self.last_wait = take
            return
        self.last_wait = None
        self.check_take(take)
        self.in_training = [*take.designer, *take.agent]
        self.steps.append((len(take.designer), len(take.agent)))
        for role, groups in (("designer", take.designer), ("agent", take.agent)):
            self.trained += [Trained(role, g, self.births[g], self.step) for g in groups]
        self.has_batch_back = False

    # What can happen next ---------------------------------------------------------------------

    def events(self) -> list[tuple[str, str]]:
        found = [("write", d.group_id) for d in self.designs.values() if d.writing]
        found += [("play", play) for play in self.plays]
        if self.in_training is not None:
            found.append(("learn", ""))
        if self.loaded < self.step:
            found.append(("load", ""))
        return found

    def happen(self, event: tuple[str, str]) -> None:
        kind, name = event
        if kind == "learn":
            assert self.in_training is not None
            self.step += 1
            self.in_training = None
            self.schedule.step_finished(self.step)
        elif kind == "load":
            self.loaded = self.rng.randint(self.loaded + 1, self.step)
            self.schedule.weights_loaded(self.loaded)
        elif kind == "write":
            self._written(self.designs[name], is_valid=self.rng.random() < self.validity)
        else:
            self._played(name, is_dead=self.rng.random() < self.deaths)

    def _written(self, design: Design, *, is_valid: bool) -> None:
        design.writing -= 1
        if is_valid:
            design.waiting += 1
        else:
            self.schedule.release(design.group_id)
        self._close(design)

    def _played(self, play: str, *, is_dead: bool) -> None:
        parent = self.plays.pop(play)
        self._end(play, is_dead=is_dead)
        if parent is not None:
            self.designs[parent].playing.discard(play)
            self._close(self.designs[parent])

    def _close(self, design: Design) -> None:
        if not (design.writing or design.waiting or design.playing):
            del self.designs[design.group_id]
            self._end(design.group_id, is_dead=self.rng.random() < self.deaths)

    def _end(self, group: str, *, is_dead: bool) -> None:
        if is_dead:
            self.schedule.drop(group)
            self.dropped.add(group)
        else:
            self.schedule.ready(group)
            self.finished.add(group)

    def _name(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number}"

    def _note(self, group: str, birth: int) -> None:
        assert birth == self.loaded, "admission is at the version a generator has loaded"
        self.births[group] = birth
        self.admitted.add(group)

    # Claims -----------------------------------------------------------------------------------

    def waiting_ready(self, role: str) -> list[str]:
        """Ready and not yet taken, oldest first."""
        done = {t.group_id for t in self.trained}
        found = [g for g in self.finished - done if (g[0] == "d") == (role == "designer")]
        return sorted(found, key=lambda g: (self.births[g], int(g[1:])))

    def check_take(self, take: Take) -> None:
        """Called before the batch is noted as trained."""
        assert take.designer or take.agent
        for role, got, quota in (
            ("designer", take.designer, self.setup.designer_quota),
            ("agent", take.agent, self.setup.agent_quota),
        ):
            ready = self.waiting_ready(role)
            births = [self.births[g] for g in got]
            expected = [self.births[g] for g in ready[:quota]]
            assert births == expected, "oldest first, as many as are ready up to the quota"
            assert set(got) <= set(ready)

    def check_capacity(self) -> None:
        """Outstanding, the batch in training included, never exceeds (bound + 1) * quota."""
        done = {t.group_id for t in self.trained} - set(self.in_training or [])
        live = self.admitted - self.dropped - done
        designs = sum(g[0] == "d" for g in live)
        reserved = sum(d.writing + d.waiting for d in self.designs.values())
        agents = len(live) - designs - sum(g[0] != "d" for g in self.in_training or [])
        s = self.setup
        assert designs <= (s.designer_bound + 1) * s.designer_quota
        assert len(live) - designs <= (s.agent_bound + 1) * s.agent_quota
        # A batch that comes back by a resume is held again, until it is taken again.
        if not self.has_batch_back:
            assert agents + reserved <= (s.agent_bound + 1) * s.agent_quota

    def check_ages(self) -> None:
        bounds = {"agent": self.setup.agent_bound, "designer": self.setup.designer_bound}
        for t in self.trained:
            assert 0 <= t.step - t.birth <= bounds[t.role], t

    def check_nothing_lost(self) -> None:
        """Everything finished is trained once or still ready; nothing left for its age."""
        names = [t.group_id for t in self.trained]
        assert len(names) == len(set(names)), "trained twice"
        known = {row.group_id for row in self.schedule.snapshot()}
        assert self.finished - set(names) <= known
        assert set(names) <= self.finished


def run(world: World, num_steps: int, *, pick: str, max_events: int = 200_000) -> None:
    """Let the world go until so many steps are done.

    `pick` is the order of events: "random", "slow_learner", "slow_generator", "lazy_load",
    "oldest_last" (the longest admitted finishes last).
    """
    world.coordinate()
    for _ in range(max_events):
        if world.step >= num_steps:
            return
        events = world.events()
        assert events, f"everyone waits at step {world.step}: {world.last_wait}"
        world.happen(_choose(events, world, pick))
        world.coordinate()
    raise AssertionError(f"no progress: step {world.step} after {max_events} events")


def _choose(events: list[tuple[str, str]], world: World, pick: str) -> tuple[str, str]:
    late = {
        "slow_learner": ("learn",),
        "slow_generator": ("write", "play"),
        "lazy_load": ("load",),
    }.get(pick, ())
    if pick == "oldest_last":
        work = [e for e in events if e[0] in ("write", "play")]
        work.sort(key=lambda e: -int(e[1][1:]))
        if work and world.rng.random() < 0.9:
            return work[0]
    preferred = [e for e in events if e[0] not in late]
    return world.rng.choice(preferred or events)
