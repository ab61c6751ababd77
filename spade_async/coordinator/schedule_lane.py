"""One role's half of the schedule: outstanding groups, their births, and the deadline lines.

All numbers are ordinals: learner steps done. A step *at* ordinal n trains what was taken when n
steps were done, so a group of birth b taken there has age n - b, and its deadline is the step at
b + bound. `next_step` below is the ordinal of the earliest step a group can still join.

The lines are the test by which jobs with deadlines fit on one machine that serves `quota` per
tick: for every birth u, what is outstanding with birth <= u fits in the steps next_step .. u +
bound. They are necessary (each such group needs one of those places) and, taking oldest first,
sufficient.

A lane with a delay k (designs that stay in play for k steps before they are paid) has groups that
no step before birth + k should have to take. Jobs whose release and deadline rise together fit if
and only if, for all births u <= v, what is born in [u, v] fits in the steps max(next_step, u + k)
.. v + bound (Hall's condition for intervals). `room` keeps that at admission; a take keeps it by
itself: intervals that begin after it are not touched, and those that begin with it are the lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from spade_async.types import Role


@dataclass(slots=True)
class Group:
    """One group in the schedule. Mutable on purpose: only `Lane` and `Schedule` touch it."""

    group_id: str
    birth: int
    is_ready: bool = False
    reserved: int = 0
    """Designer groups: agent places held for designs that may still be played."""
    is_from_pool: bool = False
    is_held: bool = False
    """Designer groups: played, and not paid yet; the coordinator can pay them at any time."""
    wanted: int = 0
    """Designer groups: designs that are, or may come, in play."""


class Lane:
    """Groups of one role that are admitted and not yet taken, in order of birth.

    Births never fall with time, so insertion order is the order of deadlines. Counts per birth are
    kept up to date: a query costs the number of distinct births (at most bound + 2), not of groups.
    """

    def __init__(self, role: Role, *, bound: int, quota: int, delay: int = 0) -> None:
        self.role = role
        self.bound = bound
        self.quota = quota
        self.delay = delay
        self.groups: dict[str, Group] = {}
        self.num_ready = 0
        self.num_from_pool = 0
        self._outstanding: dict[int, int] = {}
        self._ready: dict[int, int] = {}

    def clear(self) -> None:
        """Forget every group."""
        self.groups.clear()
        self.num_ready = self.num_from_pool = 0
        self._outstanding.clear()
        self._ready.clear()

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def num_running(self) -> int:
        """Admitted and not ready."""
        return len(self.groups) - self.num_ready

    @property
    def places(self) -> int:
        """Most groups outstanding at any time: (bound + 1) * quota."""
        return (self.bound + 1) * self.quota

    def room(self, birth: int, next_step: int) -> int:
        """How many groups of `birth`, the newest so far, still fit before their deadline."""
        last = birth + self.bound
        room = (last - next_step + 1) * self.quota - len(self.groups)
        unreleased = 0
        # Births whose groups have to wait: what is born from `first` on needs the steps from there.
        for first in range(birth, next_step - self.delay, -1):
            unreleased += self._outstanding.get(first, 0) - self._ready.get(first, 0)
            steps = last - (first + self.delay) + 1
            room = min(room, steps * self.quota - unreleased)
        return room

    def add(self, group: Group) -> None:
        """Admit; the caller has asked `room`."""
        self.groups[group.group_id] = group
        self.num_from_pool += group.is_from_pool
        self._outstanding[group.birth] = self._outstanding.get(group.birth, 0) + 1
        if group.is_ready:
            group.is_ready = False
            self.mark_ready(group)

    def mark_ready(self, group: Group) -> None:
        """All its trained members are in."""
        group.is_ready = True
        self.num_ready += 1
        self._ready[group.birth] = self._ready.get(group.birth, 0) + 1

    def remove(self, group: Group) -> None:
        """It is taken, or it is missing as a whole."""
        del self.groups[group.group_id]
        self.num_from_pool -= group.is_from_pool
        _decrement(self._outstanding, group.birth)
        if group.is_ready:
            self.num_ready -= 1
            _decrement(self._ready, group.birth)

    def failing_line(self, step: int) -> int | None:
        """Smallest birth u whose line fails if the step at `step` took what is ready now.

        Oldest first, the step takes min(quota, ready) groups; what is then left with birth <= u
        must fit in the steps step + 1 .. u + bound. None when every line holds.
        """
        outstanding = ready = 0
        for birth in sorted(self._outstanding):
            outstanding += self._outstanding[birth]
            ready += self._ready.get(birth, 0)
            left = outstanding - min(self.quota, ready)
            if left > max(0, birth + self.bound - step) * self.quota:
                return birth
        return None

    def running(self) -> Iterator[Group]:
        """Groups that are not ready, oldest first."""
        return (group for group in self.groups.values() if not group.is_ready)

    def awake(self) -> Iterator[Group]:
        """Groups that are not ready, and not held, oldest first."""
        return (group for group in self.running() if not group.is_held)

    def oldest_held(self) -> Group | None:
        """The group that has waited longest for its pay."""
        return next((group for group in self.running() if group.is_held), None)

    def oldest_running(self) -> Group | None:
        """The group that waited longest without being ready."""
        return next(self.running(), None)

    def oldest_ready(self) -> list[Group]:
        """What a step would take: ready groups, oldest first, at most the quota."""
        taken: list[Group] = []
        for group in self.groups.values():
            if len(taken) == self.quota:
                break
            if group.is_ready:
                taken.append(group)
        return taken

    def oldest_mixed(self) -> list[Group]:
        """`oldest_ready`, with pool plays and others of one birth in proportion.

        When a birth has more than a step takes, the first step would else have all its pool plays.
        """
        ready = [group for group in self.groups.values() if group.is_ready]
        kinds = [(group.birth, group.is_from_pool) for group in ready]
        totals, seen = Counter(kinds), Counter[tuple[int, bool]]()
        places = []
        for index, kind in enumerate(kinds):
            places.append((kind[0], (seen[kind] + 0.5) / totals[kind], index))
            seen[kind] += 1
        return [ready[index] for _, _, index in sorted(places)[: self.quota]]


def _decrement(counts: dict[int, int], birth: int) -> None:
    counts[birth] -= 1
    if not counts[birth]:
        del counts[birth]
