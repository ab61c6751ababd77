"""Delayed pay in virtual time: what the coordinator's `payer.py` and `replay.py` decide.

A design that was played is held: it is played once more, without the hint, at each version, until
its group is paid `delay` learner steps after the last of its first plays. Not here: the last step
of a run, at which the coordinator pays whatever waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from spade_async.coordinator.schedule import Schedule


@dataclass(slots=True)
class Standing:
    """A design that waits for its pay."""

    first: int
    """Birth of its first play; offsets count from there."""
    begun: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)


@dataclass(slots=True)
class SimGroup:
    """Designs that share a prompt, until they are paid."""

    group_id: str
    number: int
    pending: int
    """Designs whose fate is open: being written, waiting for a place, or in play."""
    waiting: list[int] = field(default_factory=list)
    """Valid designs without a place."""
    num_playing: int = 0
    held: dict[int, Standing] = field(default_factory=dict)
    """By number of the design."""

    def hold(self, number: int, first: int) -> None:
        """A design's first play is in."""
        self.held[number] = Standing(first)


class Held:
    """Answers for the designs that wait; `TwoRoles` does what it says."""

    def __init__(self, delay: int, schedule: Schedule, groups: Mapping[str, SimGroup]) -> None:
        """`groups` is the simulation's own, oldest first."""
        self._delay, self._schedule, self._groups = delay, schedule, groups

    def due(self) -> list[SimGroup]:
        """Groups of which all is in and whose time has come."""
        now = self._schedule.learner_ordinal
        return [
            group
            for group in self._groups.values()
            if group.held
            and not group.pending
            and now >= self._delay + max(s.first for s in group.held.values())
            and not any(s.running for s in group.held.values())
        ]

    def wanted(self) -> Iterator[tuple[SimGroup, int, int]]:
        """(group, design, offset) of each play that the newest loaded version allows."""
        now = self._schedule.loaded_ordinal
        if now is None:
            return
        for group in list(self._groups.values()):
            for number, standing in group.held.items():
                offset = now - standing.first
                if 0 < offset < self._delay and offset not in standing.begun:
                    yield group, number, offset

    def begin(self, group: SimGroup, number: int, offset: int) -> Callable[[], None]:
        """One of them starts. Returns what to call when it is in."""
        standing = group.held[number]
        standing.begun.add(offset)
        standing.running.add(offset)
        return partial(standing.running.discard, offset)

    @property
    def num_expected(self) -> int:
        """Designs that may be played at the version that comes next."""
        schedule = self._schedule
        coming = schedule.learner_ordinal + schedule.training
        groups = self._groups.values()
        return sum(group.num_playing for group in groups) + sum(
            0 < coming - standing.first < self._delay
            for group in groups
            for standing in group.held.values()
        )
