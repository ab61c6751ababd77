"""Four ways of enforcing a staleness bound on one role; the last is the coordinator's.

Ages are in learner steps. `EarliestDeadline` holds no rule of its own: it asks the `Lane` that the
coordinator's schedule asks. The others are what asynchronous trainers usually do, for comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from spade_async.coordinator.schedule_lane import Group, Lane
from spade_async.types import Role


class Rule(Protocol):
    """Decides what is admitted, what a step takes, and what is thrown away."""

    def may_admit(self) -> bool:
        """Whether one more group may start now."""

    def admit(self, name: str) -> int:
        """Start it; the version it is counted from."""

    def finished(self, name: str) -> None:
        """All its members are in."""

    def take(self) -> list[str] | None:
        """The groups of the next step, or None: not yet."""

    def dropped(self) -> list[str]:
        """Groups thrown away since the last call, finished or not."""

    def step_finished(self) -> None:
        """The step in training is done."""

    def weights_loaded(self) -> None:
        """Generators have the newest version."""


class Admission:
    """Only admission: trained + in flight + ready never exceed (bound + version + 1) * quota.

    Args:
        bound: largest age that is wanted.
        quota: groups of one step.
        drops: a step leaves out, and throws away, ready groups that are older than the bound.
        cancels: what is older than the bound is also stopped in flight, as soon as it is.
    """

    def __init__(self, bound: int, quota: int, *, drops: bool = False, cancels: bool = False):
        self._bound, self._quota = bound, quota
        self._drops, self._cancels = drops or cancels, cancels
        self._version = self._loaded = 0
        self._births: dict[str, int] = {}
        self._ready: list[str] = []
        self._num_taken = 0
        self._dropped: list[str] = []

    def may_admit(self) -> bool:
        """The usual formula."""
        accepted = self._num_taken + len(self._births)
        return accepted < (self._bound + self._loaded + 1) * self._quota

    def admit(self, name: str) -> int:
        """Counted from the loaded version."""
        self._births[name] = self._loaded
        return self._loaded

    def finished(self, name: str) -> None:
        """First come, first trained."""
        self._ready.append(name)

    def take(self) -> list[str] | None:
        """The first `quota` that came in."""
        if self._drops:
            self._drop([name for name in self._ready if self._is_old(name)])
        if len(self._ready) < self._quota:
            return None
        taken, self._ready = self._ready[: self._quota], self._ready[self._quota :]
        for name in taken:
            del self._births[name]
        self._num_taken += self._quota
        return taken

    def dropped(self) -> list[str]:
        """Names, once."""
        found, self._dropped = self._dropped, []
        return found

    def step_finished(self) -> None:
        """A version more."""
        self._version += 1

    def weights_loaded(self) -> None:
        """Admission opens for it; too old work is stopped by `cancels`."""
        self._loaded = self._version
        if self._cancels:
            self._drop([name for name in self._births if self._is_old(name)])

    def _is_old(self, name: str) -> bool:
        return self._version - self._births[name] > self._bound

    def _drop(self, names: list[str]) -> None:
        gone = set(names)
        self._ready = [name for name in self._ready if name not in gone]
        for name in names:
            del self._births[name]
        self._dropped += names


class EarliestDeadline:
    """The coordinator's rule for one role: its own `Lane` says what fits and which line fails."""

    def __init__(self, bound: int, quota: int) -> None:
        self._lane = Lane(Role.AGENT, bound=bound, quota=quota)
        self._version = self._loaded = 0
        self._is_training = False

    def may_admit(self) -> bool:
        """Rule 1 of the schedule."""
        return self._lane.room(self._loaded, self._version + self._is_training) > 0

    def admit(self, name: str) -> int:
        """Counted from the loaded version."""
        self._lane.add(Group(name, self._loaded))
        return self._loaded

    def finished(self, name: str) -> None:
        """It may be taken."""
        self._lane.mark_ready(self._lane.groups[name])

    def take(self) -> list[str] | None:
        """Oldest first, a full quota, and only while every line holds."""
        lane = self._lane
        if lane.num_ready < lane.quota or lane.failing_line(self._version) is not None:
            return None
        taken = lane.oldest_ready()
        for group in taken:
            lane.remove(group)
        self._is_training = True
        return [group.group_id for group in taken]

    def dropped(self) -> list[str]:
        """Never any."""
        return []

    def step_finished(self) -> None:
        """A version more; the batch's places are free."""
        self._version += 1
        self._is_training = False

    def weights_loaded(self) -> None:
        """Admission opens for it."""
        self._loaded = self._version


RULES: dict[str, Callable[[int, int], Rule]] = {
    "admission": Admission,
    "drop": lambda bound, quota: Admission(bound, quota, drops=True),
    "cancel": lambda bound, quota: Admission(bound, quota, cancels=True),
    "edf": EarliestDeadline,
}
"""By the names of the table; each is made from (bound, quota)."""
