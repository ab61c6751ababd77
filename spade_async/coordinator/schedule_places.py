"""How many more groups fit: the admission half of the schedule (rules 1, 2, 3 and 5 there).

`birth` is the ordinal a group admitted now would have, None before any weights are loaded;
`next_step` is the earliest step it could join.
"""

from __future__ import annotations

from collections import Counter

from spade_async.coordinator.schedule_lane import Lane
from spade_async.errors import ConfigError
from spade_async.types import Role


class Places:
    """Both roles' lanes, the agent places that designs reserve, and who may have what is left."""

    def __init__(self, agent: Lane, designer: Lane, *, group_size: int, pool_share: float) -> None:
        """Check that a design group's plays can ever fit.

        Raises:
            ConfigError: a bound, a quota or the group size makes no sense, or does not fit.
        """
        for lane in (agent, designer):
            if lane.bound < 0 or lane.quota < 1:
                raise ConfigError(
                    f"{lane.role}: bound={lane.bound} must be at least 0, quota={lane.quota} at "
                    f"least 1"
                )
        self.agent = agent
        self.designer = designer
        self.group_size = group_size
        self.num_reserved = 0
        """Agent places held for designs that may still be played."""
        self.num_dropped: Counter[Role] = Counter()
        """Groups dropped since the last take while something was ready."""
        self._pool_places = (agent.bound + 1) * round(agent.quota * pool_share)
        self._design_places = agent.places - self._pool_places
        if not 1 <= group_size <= self._design_places:
            raise ConfigError(
                f"designer.group_size={group_size} does not fit the {self._design_places} places "
                f"that agent.groups_per_step={agent.quota} leaves for designed environments: raise "
                f"agent.groups_per_step or the agent bound, or lower designer.group_size"
            )

    def clear(self) -> None:
        """Forget every group."""
        self.agent.clear()
        self.designer.clear()
        self.num_reserved = 0
        self.num_dropped.clear()

    def note_dropped(self, role: Role) -> None:
        """A group is missing; while something is ready, its place is not given before the take."""
        if self._anything_ready:
            self.num_dropped[role] += 1

    @property
    def _anything_ready(self) -> bool:
        return self.agent.num_ready + self.designer.num_ready > 0

    @property
    def num_held(self) -> int:
        """Agent places in use or reserved; never above the agent lane's places (rule 2)."""
        return len(self.agent) + self.num_reserved

    def agent_room(self, birth: int | None, next_step: int) -> int:
        """Agent groups that may start now as far as deadlines go."""
        return 0 if birth is None else self.agent.room(birth, next_step)

    def designs(self, birth: int | None, next_step: int) -> int:
        """Designer groups that may be admitted now."""
        if birth is None:
            return 0
        designed = self.num_held - self.agent.num_from_pool
        places = min(
            self._design_places - designed,
            self.agent.places - self.num_held - self._spent(Role.AGENT),
        )
        return max(0, min(self._designer_room(birth, next_step), places // self.group_size))

    def pool(self, birth: int | None, next_step: int) -> int:
        """Pool plays that may be admitted now."""
        if birth is None:
            return 0
        unreserved = self.agent.room(birth, next_step) - self.num_reserved
        share = self._pool_places - self.agent.num_from_pool
        beyond = self._beyond_share(birth, next_step)
        return max(0, min(unreserved - self._spent(Role.AGENT), max(share, beyond)))

    def _beyond_share(self, birth: int, next_step: int) -> int:
        """Places pool plays may have beyond their share because designs run dry (rule 3)."""
        free = self.agent.places - self.num_held - self._spent(Role.AGENT)
        if self._designer_room(birth, next_step) <= 0:
            # Left free where places outlive a step: single plays would else take every place that
            # comes free, and a design group would never find its places all at once.
            return free if self.agent.bound == 0 else free - self.group_size
        no_design_fits = self.num_reserved == 0 and self.designs(birth, next_step) == 0
        return free if self.agent.bound == 0 and no_design_fits else 0

    def _designer_room(self, birth: int, next_step: int) -> int:
        return self.designer.room(birth, next_step) - self._spent(Role.DESIGNER)

    def _spent(self, role: Role) -> int:
        """Places of dropped groups, not given again before the next take (rule 5)."""
        return self.num_dropped[role] if self._anything_ready else 0
