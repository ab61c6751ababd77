"""The schedule's groups as rows, and back: for the ledger and a resume."""

from __future__ import annotations

from collections.abc import Iterable

from spade_async.coordinator.schedule_lane import Group, Lane
from spade_async.coordinator.schedule_questions import Questions
from spade_async.coordinator.schedule_records import OpenGroup
from spade_async.types import Role


class Resumable(Questions):
    """What of `Schedule` outlives a process."""

    loaded_ordinal: int | None
    _is_training: bool
    _num_replays: int

    def snapshot(self) -> list[OpenGroup]:
        """All groups not trained yet, oldest first; a batch in training counts as ready."""
        rows = [*self._in_training]
        rows += [(lane.role, group) for lane in self._lanes for group in lane.groups.values()]
        rows.sort(key=lambda row: row[1].birth)
        return [
            OpenGroup(
                g.group_id,
                role,
                g.birth,
                g.is_ready,
                g.reserved,
                g.is_from_pool,
                g.is_held,
                g.wanted,
            )
            for role, g in rows
        ]

    def restore(
        self, learner_ordinal: int, groups: Iterable[OpenGroup], *, num_replays: int = 0
    ) -> list[str]:
        """Become the schedule of a resumed run; no weights are loaded and nothing is in training.

        Args:
            learner_ordinal: learner steps ever done, abandoned ones included.
            groups: a snapshot, or the same rows read from the ledger, in order of admission. A
                batch that was in training may be among them, as ready groups: until it is taken
                again, places held can exceed rule 2; taking it is then allowed at once.
            num_replays: steps that repeat batches of the past, by `begin_replay`, before any of
                these groups can be taken; the places of those steps are gone.

        Returns:
            Groups that no schedule can train within the bound, left out: lost to a roll-back. Empty
            when no step was abandoned.
        """
        self.learner_ordinal = learner_ordinal
        self.loaded_ordinal = None
        self._in_training.clear()
        self._is_training = False
        self._num_replays = num_replays
        self._places.clear()
        lost: list[str] = []
        for row in sorted(groups, key=lambda row: row.birth):
            lane = self._agent if row.role is Role.AGENT else self._designer
            if lane.room(row.birth, self._next_step) < 1:
                lost.append(row.group_id)
                continue
            reserved = 0 if row.is_ready else row.reserved
            group = Group(row.group_id, row.birth, row.is_ready, reserved, row.is_from_pool)
            group.is_held, group.wanted = row.is_held, row.wanted
            self._add(lane, group)
            self._places.num_reserved += reserved
        return lost

    @property
    def _next_step(self) -> int:
        return self.learner_ordinal + self._is_training + self._num_replays

    def _add(self, lane: Lane, group: Group) -> int:
        if any(group.group_id in other.groups for other in self._lanes):
            raise ValueError(f"group {group.group_id!r} is in the schedule already")
        lane.add(group)
        return group.birth
