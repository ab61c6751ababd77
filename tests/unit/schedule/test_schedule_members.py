"""The bound token by token: generators that load late, swap under samples, die, and cut members.

`schedule_world.py` takes groups whole; here each sample has its tokens, each with the version its
generator had loaded when it was sampled. Age is that of the oldest trained token of a sample.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schedule_world import Setup, World, run

from spade_async.coordinator.schedule import Take

NUM_GENERATORS = 2
NUM_SEEDS = 3


@dataclass(eq=False)
class Member:
    """One sample that is being sampled."""

    group: str
    birth: int
    generator: int | None = None
    versions: list[int] = field(default_factory=list)


class MemberWorld(World):
    """A `World` in which a group ends member by member."""

    def __init__(self, setup: Setup, rng: random.Random, *, finish: bool, **rates: float) -> None:
        self.deaths_of_generators, self.cuts = rates.pop("dies"), rates.pop("cuts")
        super().__init__(setup, rng, validity=rates["validity"], deaths=0.0, has_pool=True)
        self.finish = finish
        self.generators = [-1] * NUM_GENERATORS
        self.members: list[Member] = []
        self.done: dict[str, list[int]] = {}
        """Group -> oldest version of each finished sample."""
        self.num_cut = self.num_dead = 0

    # What is begun ------------------------------------------------------------------------------

    def _note(self, group: str, birth: int) -> None:
        super()._note(group, birth)
        size = self.setup.group_size if group[0] == "d" else NUM_SEEDS
        self.members += [Member(group, birth) for _ in range(size)]
        self.done[group] = []
        for member in self.members[-size:]:
            self._place(member)

    def _place(self, member: Member) -> None:
        """To any generator; it begins when that has the version the group was admitted at."""
        member.generator = self.rng.randrange(NUM_GENERATORS)
        member.versions.clear()

    # What can happen ----------------------------------------------------------------------------

    def events(self) -> list[tuple[str, str]]:
        found = [e for e in super().events() if e[0] == "learn"]
        found += [("load", str(g)) for g, v in enumerate(self.generators) if v < self.step]
        can = [i for i, m in enumerate(self.members) if self._can_sample(m)]
        return found + [("token", str(i)) for i in can]

    def _can_sample(self, member: Member) -> bool:
        assert member.generator is not None
        return self.generators[member.generator] >= member.birth

    def happen(self, event: tuple[str, str]) -> None:
        kind, name = event
        if kind == "learn":
            super().happen(event)
            return
        if kind == "load":
            generator = int(name)
            low = self.generators[generator] + 1
            self.generators[generator] = self.rng.randint(low, self.step)
            self.loaded = max(self.generators)
            self.schedule.weights_loaded(self.generators[generator])
            if self.rng.random() < self.deaths_of_generators:
                self._die(generator)
            return
        member = self.members[int(name)]
        newest = self.generators[member.generator or 0]
        member.versions.append(member.versions[0] if self.finish and member.versions else newest)
        if self.rng.random() < self.cuts:
            self._cut(member)
        elif self.rng.random() < 0.4:
            self._sampled(member)

    def _die(self, generator: int) -> None:
        """All it was sampling is asked for again; it comes back with the newest weights."""
        self.num_dead += 1
        for member in self.members:
            if member.generator == generator:
                self._place(member)

    def _sampled(self, member: Member) -> None:
        self.members.remove(member)
        self.done[member.group].append(min(member.versions))
        self._ended(member.group)

    def _cut(self, straggler: Member) -> None:
        """What is missing of its group is missing for good; what is finished is trained."""
        group = straggler.group
        missing = [m for m in self.members if m.group == group]
        self.members = [m for m in self.members if m.group != group]
        for _ in missing:
            self.num_cut += 1
            self._ended(group, is_missing=True)

    def _ended(self, group: str, *, is_missing: bool = False) -> None:
        if group[0] == "d":
            design = self.designs[group]
            self._written(design, is_valid=not is_missing and self.rng.random() < self.validity)
        elif not any(m.group == group for m in self.members) and group in self.plays:
            self._played(group, is_dead=len(self.done[group]) < 2)

    def _close(self, design) -> None:  # type: ignore[no-untyped-def]
        if design.writing or design.waiting or design.playing:
            return
        del self.designs[design.group_id]
        is_dead = len(self.done[design.group_id]) < 2
        (self.schedule.drop if is_dead else self.schedule.ready)(design.group_id)
        (self.dropped if is_dead else self.finished).add(design.group_id)

    # Claims -------------------------------------------------------------------------------------

    def check_take(self, take: Take) -> None:
        super().check_take(take)
        for groups, bound in (
            (take.designer, self.setup.designer_bound),
            (take.agent, self.setup.agent_bound),
        ):
            for group in groups:
                for oldest in self.done[group]:
                    assert self.births[group] <= oldest <= self.step
                    assert self.step - oldest <= bound


SETUPS = [
    Setup(*bounds, *sizes)
    for bounds in ((0, 0), (0, 1), (1, 0), (1, 2), (4, 8))
    for sizes in ((2, 1, 2, 0.5), (4, 2, 4, 0.0), (8, 2, 4, 0.25))
]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([s for s in SETUPS if s.is_legal]),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([0.0, 0.02, 0.3]),
    st.booleans(),
    st.sampled_from(["random", "slow_learner", "lazy_load"]),
    st.booleans(),
)
def test_no_trained_token_is_over_the_bound_whatever_swaps_dies_or_is_cut(
    setup, seed, validity, dies, cuts, finish, order, limited
):
    rng = random.Random(seed)
    world = MemberWorld(setup, rng, finish=finish, validity=validity, dies=dies, cuts=cuts)
    if limited:
        world.limits = random.Random(seed)
    run(world, 8, pick=order, max_events=20_000)
    world.check_ages()
    world.check_nothing_lost()


def test_the_world_really_swaps_kills_and_cuts():
    setup = Setup(4, 8, 8, 2, 4, 0.25)
    world = MemberWorld(setup, random.Random(1), finish=False, validity=0.8, dies=0.2, cuts=0.02)
    mixed = 0
    sampled = world._sampled

    def counting(member):
        nonlocal mixed
        mixed += len(set(member.versions)) > 1
        sampled(member)

    world._sampled = counting
    run(world, 25, pick="random")
    assert mixed > 20
    assert world.num_cut > 20
    assert world.num_dead > 3
