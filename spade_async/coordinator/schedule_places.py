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
        self.agent_limit = agent.places
        """Most agent places held, at most what the bound allows; `limit` lowers it."""
        self.designer_limit = designer.places
        """Most designer groups outstanding, likewise."""
        self.num_expected = 0
        """Places kept free for plays at later offsets that wait for the next version."""
        self.pool_has_work = True
        """See `Schedule`."""
        self.num_dropped: Counter[Role] = Counter()
        """Groups dropped since the last take while something was ready."""
        self._pool_quota = round(agent.quota * pool_share)
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

    def limit(self, *, agents: int, designs: int) -> None:
        """Hold less than the bound allows: at least a quota of each role, and a design group."""
        agent, designer = self.agent, self.designer
        self.agent_limit = min(agent.places, max(agents, agent.quota, self._fewest_places))
        fewest = designer.quota * (designer.delay + 1)
        self.designer_limit = min(designer.places, max(designs, fewest))

    def is_held(self, birth: int | None, next_step: int) -> set[Role]:
        """Roles of which a group fits by the bound and the limits alone keep it out."""
        now = self.agent_limit, self.designer_limit
        agents, designs = self.pool(birth, next_step), self.designs(birth, next_step)
        self.agent_limit, self.designer_limit = self.agent.places, now[1]
        held = set()
        if self.pool(birth, next_step) > agents or self.designs(birth, next_step) > designs:
            held.add(Role.AGENT)
        self.agent_limit, self.designer_limit = now[0], self.designer.places
        if self.designs(birth, next_step) > designs:
            held.add(Role.DESIGNER)
        self.agent_limit, self.designer_limit = now
        return held

    @property
    def _fewest_places(self) -> int:
        """Places that hold a design group beside the pool's share."""
        quota = self.agent.quota
        return -(-self.group_size * quota // (quota - self._pool_quota))

    @property
    def _pool_places(self) -> int:
        """The pool's share of the places, in proportion when they are limited."""
        return self.agent_limit * self._pool_quota // self.agent.quota

    @property
    def _design_places(self) -> int:
        return self.agent_limit - self._pool_places

    @property
    def _free_places(self) -> int:
        """Places that nobody holds."""
        return self.agent_limit - self.num_held - self._spent(Role.AGENT)

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
        places = min(self._design_places - designed, self._free_places) - self.num_expected
        return max(0, min(self._designer_room(birth, next_step), places // self.group_size))

    def replays(self, birth: int | None, next_step: int) -> int:
        """Plays at later offsets that may be admitted now: they have the places of designs."""
        if birth is None:
            return 0
        unreserved = self.agent.room(birth, next_step) - self.num_reserved
        designed = self.num_held - self.agent.num_from_pool
        room = min(unreserved - self._spent(Role.AGENT), self._free_places)
        return max(0, min(room, self._design_places - designed))

    def pool(self, birth: int | None, next_step: int) -> int:
        """Pool plays that may be admitted now."""
        if birth is None:
            return 0
        unreserved = self.agent.room(birth, next_step) - self.num_reserved
        share = self._pool_places - self.agent.num_from_pool
        beyond = self._beyond_share(birth, next_step)
        if self.designer.delay:
            # What is in play is played at every step: the pool fills what that leaves, no more, or
            # its plays would stand before those of designs for as many steps as the bound allows.
            left = max(0, self.agent.quota - self._num_in_play)
            beyond = min(
                beyond, self.agent_limit * left // self.agent.quota - self.agent.num_from_pool
            )
        room = min(unreserved - self._spent(Role.AGENT), self._free_places)
        return max(0, min(room, max(share, beyond)))

    def _beyond_share(self, birth: int, next_step: int) -> int:
        """Places pool plays may have beyond their share because designs run dry (rule 3)."""
        free = self._free_places - self.num_expected
        if self._designer_room(birth, next_step) <= 0:
            # Left free where places outlive a step: single plays would else take every place that
            # comes free, and a design group would never find its places all at once.
            return free if self.agent.bound == 0 else free - self.group_size
        no_design_fits = self.num_reserved == 0 and self.designs(birth, next_step) == 0
        return free if self.agent.bound == 0 and no_design_fits else 0

    def _designer_room(self, birth: int, next_step: int) -> int:
        room = min(self.designer.room(birth, next_step), self.designer_limit - len(self.designer))
        if self.designer.delay:
            room = min(room, self._window_room)
        return room - self._spent(Role.DESIGNER)

    @property
    def _num_in_play(self) -> int:
        """Designs that are, or may come, in play."""
        return sum(g.wanted for g in self.designer.running())

    @property
    def _window_room(self) -> int:
        """Designer groups that still fit in play when pay is delayed.

        Each design is to be played at every version: no more than a step has places for.
        """
        in_play = self._num_in_play
        quota = self.agent.quota - (self._pool_quota if self.pool_has_work else 0)
        return max(not in_play, (quota - in_play) // self.group_size)

    def _spent(self, role: Role) -> int:
        """Places of dropped groups, not given again before the next take (rule 5)."""
        return self.num_dropped[role] if self._anything_ready else 0
