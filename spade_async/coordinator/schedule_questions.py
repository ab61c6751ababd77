"""What can be asked of the schedule: births, ages, whom a wait is for, gauges."""

from __future__ import annotations

from spade_async.coordinator.schedule_lane import Group, Lane
from spade_async.coordinator.schedule_places import Places
from spade_async.coordinator.schedule_records import Wait, WaitReason
from spade_async.types import Role


class Questions:
    """The reading half of `Schedule`."""

    learner_ordinal: int
    _agent: Lane
    _designer: Lane
    _lanes: tuple[Lane, ...]
    _places: Places
    _in_training: list[tuple[Role, Group]]

    def birth(self, group_id: str) -> int:
        """Ordinal the group was admitted at; also while it is in training.

        Raises:
            KeyError: no such group.
        """
        for _, group in self._in_training:
            if group.group_id == group_id:
                return group.birth
        return self._find(group_id)[1].birth

    def age(self, group_id: str) -> int:
        """Learner steps since its birth; while in training, the age it is trained at."""
        return self.learner_ordinal - self.birth(group_id)

    def oldest(self) -> tuple[str, Role, int] | None:
        """(group, role, age) of the oldest group not yet taken; None when there is none."""
        firsts = [
            (next(iter(lane.groups.values())), lane.role) for lane in self._lanes if lane.groups
        ]
        if not firsts:
            return None
        group, role = min(firsts, key=lambda first: first[0].birth)
        return group.group_id, role, self.learner_ordinal - group.birth

    def blockers(self, wait: Wait) -> list[tuple[str, Role]]:
        """Running groups, oldest first, of which a wait needs one or more before it can end."""
        if wait.reason is WaitReason.TRAINING:
            return []
        if wait.reason is WaitReason.DEADLINE:
            lane = self._agent if wait.role is Role.AGENT else self._designer
            line = lane.failing_line(self.learner_ordinal)
            running = [(g, lane.role) for g in lane.awake() if line is None or g.birth <= line]
        else:
            running = [(g, lane.role) for lane in self._lanes for g in lane.awake()]
        running.sort(key=lambda found: found[0].birth)
        return [(group.group_id, role) for group, role in running]

    def counts(self) -> dict[str, int]:
        """Gauges for metrics: groups ready and running per role, places reserved, in training."""
        return {
            "designer_ready": self._designer.num_ready,
            "designer_running": self._designer.num_running,
            "designer_held": sum(g.is_held for g in self._designer.running()),
            "agent_ready": self._agent.num_ready,
            "agent_running": self._agent.num_running,
            "agent_reserved": self._places.num_reserved,
            "agent_from_pool": self._agent.num_from_pool,
            "in_training": len(self._in_training),
        }

    def _find(self, group_id: str) -> tuple[Lane, Group]:
        for lane in self._lanes:
            if group_id in lane.groups:
                return lane, lane.groups[group_id]
        raise KeyError(f"no outstanding group {group_id!r}: taken, dropped or never admitted")
