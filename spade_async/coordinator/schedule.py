"""The schedule: what may be admitted, what a learner step takes, whom it waits for (steps 8, 9).

Pure: no clock, no sockets, no torch, only integers. The coordinator reports what happened and asks.

**Rule.** An ordinal is a number of learner steps done; a group's *birth* is the newest ordinal a
generator had loaded when it was admitted; its *age* is the ordinal it is trained at minus its
birth. Per role r with bound S_r and quota B_r, and with n the earliest step that can still be
joined (the present ordinal, or the next one while a batch is in training: the batch, its unused
places included, counts until its step ends):

1. *Lines.* For every u, outstanding groups of r with birth <= u never exceed
   (u + S_r - n + 1) * B_r. Admission keeps the newest line; a take, oldest first, happens only if
   all lines hold at n + 1.
2. *Reservation.* Agent groups outstanding plus agent places reserved by designs that may still be
   played never exceed (S_A + 1) * B_A. A design group reserves a place per design; a design that
   will not be played releases its own.
3. *Pool share.* Designed groups keep to (S_A + 1) * (B_A - pool), pool plays to (S_A + 1) * pool,
   with pool = round(B_A * pool_share). Pool plays may go beyond when designs run dry: the
   designer's own line is full (then, if S_A > 0, one design group's worth of places stays free for
   it), or S_A = 0 and no design group fits this step any more.
4. *Ceilings.* Once the agents have their quota ready, a take waits for nothing but a failing line:
   designs that are not due come when they come, for it is the agents' places that let more of them
   in. Before that it waits to fill a role only while ready + running + reserved + admissible work
   reaches that role's quota: agents first, then designs.
5. *A dropped group's place* is not given again before the next take, unless nothing is ready.
6. *Delayed pay.* With a delay k admission keeps the lines of `schedule_lane`, so that no line needs
   a designer group before birth + k. Held groups are waited for by nobody; from then on the oldest
   is paid as it is (`WaitReason.HELD`) when a line needs it. Plays of its environments at later
   offsets are agent groups; they have the places of designed groups, before new designs,
   and no more designs are in play than a step has places for. With so little work that no quota
   can be filled, a take waits for the plays that run, for designs that may still be played, and,
   rather than take designs alone, for the newest weights, under which there may be plays: else
   steps, and delays, would pass unused. If nothing else is outstanding and nothing can be
   admitted, the oldest is paid before its time.

**Theorem.** No group is trained older than its bound, none is discarded for age, and it never
happens that everyone waits, provided generators finish or fail what they were given and load what
is published. *Age:* line u at u = n - S_r - 1 says that nothing of that birth is left. *No waste:*
only `drop` removes an untrained group. *Progress:* suppose no batch is in training, the newest
weights are loaded and generators have nothing to do. By 2 every reserved place could be started at
once, so all valid designs were played and nothing is reserved; hence every outstanding group of
either role is ready. Each line then holds: min(B_r, outstanding) are taken and the line at n
implies the one at n + 1. By 4 the take waits for nothing but admissible work, of which by 1, 2 and
5 there is only a bounded amount before the take. And if nothing is outstanding, a design group is
admissible.

Bound 0 is the synchronous mode: line 1 admits at u = n only, and leaves nothing behind a take.
"""

from __future__ import annotations

from spade_async.coordinator.schedule_lane import Group, Lane
from spade_async.coordinator.schedule_places import Places
from spade_async.coordinator.schedule_records import OpenGroup, Take, Wait, WaitReason
from spade_async.coordinator.schedule_resume import Resumable
from spade_async.types import Role

__all__ = ["OpenGroup", "Schedule", "Take", "Wait", "WaitReason"]


class Schedule(Resumable):
    """Earliest-deadline rule for both roles. One owner, the coordinator; not thread-safe.

    Nothing can be admitted before the first `weights_loaded`.
    """

    def __init__(
        self,
        *,
        agent_bound: int,
        designer_bound: int,
        agent_quota: int,
        designer_quota: int,
        group_size: int,
        pool_share: float,
        designer_delay: int = 0,
        fill: bool = False,
    ) -> None:
        """Start at ordinal 0, nothing outstanding, no weights loaded.

        Args:
            agent_bound: largest age, in learner steps, of a trained agent group.
            designer_bound: the same of a designer group.
            agent_quota: most agent groups in a step.
            designer_quota: most designer groups in a step.
            group_size: designs per designer group, each of which may become one agent group.
            pool_share: share of the agent's places kept for plays from memory or the seed pool.
            designer_delay: learner steps after a designer group's birth in which no deadline may
                need it, because its pay is delayed.
            fill: a take waits until nothing runs and nothing can be admitted: samples are as old as
                the bounds let them be.

        Raises:
            ConfigError: a design group's plays would never fit the agent's places.
        """
        self._agent = Lane(Role.AGENT, bound=agent_bound, quota=agent_quota)
        self._designer = Lane(
            Role.DESIGNER, bound=designer_bound, quota=designer_quota, delay=designer_delay
        )
        self._lanes = (self._designer, self._agent)
        self._places = Places(
            self._agent, self._designer, group_size=group_size, pool_share=pool_share
        )
        self._fills = fill
        self.learner_ordinal = 0
        """Learner steps done, abandoned ones included: the version of the newest weights."""
        self.loaded_ordinal: int | None = None
        """Newest ordinal a generator has loaded and acknowledged; birth of what is admitted."""
        self.is_open = True
        """Set False to end a run: nothing more is admitted, what is outstanding is finished."""
        self._in_training: list[tuple[Role, Group]] = []
        self._is_training = False
        self._num_replays = 0

    # What the coordinator may hand out -------------------------------------------------------

    @property
    def pool_has_work(self) -> bool:
        """Set False while neither memory nor the seed pool has a play: nobody waits for one."""
        return self._places.pool_has_work

    @pool_has_work.setter
    def pool_has_work(self, has_work: bool) -> None:
        self._places.pool_has_work = has_work

    @property
    def training(self) -> bool:
        """Whether a batch has been taken and its step has not ended."""
        return self._is_training

    def limit(self, *, agents: int, designs: int) -> None:
        """Hold fewer groups than the bound allows (see `inflight.py`); never below a quota."""
        self._places.limit(agents=agents, designs=designs)

    def held_by_limit(self) -> set[Role]:
        """Roles of which one more group fits by the bound, and `limit` alone keeps it out."""
        return self._places.is_held(self.loaded_ordinal, self._next_step) if self.is_open else set()

    def close_when_enough(self, steps_left: int) -> None:
        """With full bounds: admit no more once what is outstanding fills all steps to come."""
        if not self._fills:
            return
        steps = steps_left - self._is_training
        is_enough = self._places.num_held >= steps * self._agent.quota
        if is_enough and len(self._designer) >= steps * self._designer.quota:
            self.is_open = False

    def can_admit_design(self) -> bool:
        """Whether one more designer group may start; it also needs `group_size` agent places."""
        return self._num_designs() > 0

    def admit_design(self, group_id: str) -> int:
        """Admit a designer group and reserve `group_size` agent places. Returns its birth."""
        self._require(self.can_admit_design(), "admit_design", group_id)
        size = self._places.group_size
        birth = self._add(
            self._designer, Group(group_id, self._birth(), reserved=size, wanted=size)
        )
        self._places.num_reserved += size
        return birth

    def release(self, design_group: str, num: int = 1) -> None:
        """Give back agent places: so many designs are invalid, missing or will not be played."""
        group = self._designer.groups.get(design_group)
        if group is None or not 0 <= num <= group.reserved:
            held = "no" if group is None else group.reserved
            raise ValueError(f"release({design_group!r}, {num}): it holds {held} agent places")
        group.reserved -= num
        group.wanted -= num
        self._places.num_reserved -= num

    def can_start_play(self, design_group: str) -> bool:
        """Whether a valid design of that group may be played now.

        False while its place lies in a later step (a batch is in training, or the newest weights
        are not loaded). Ask oldest design group first.
        """
        group = self._designer.groups.get(design_group)
        if group is None or group.reserved == 0:
            return False
        return self._places.agent_room(self.loaded_ordinal, self._next_step) > 0

    def start_play(self, design_group: str, play_group: str) -> int:
        """Turn one reserved place into an agent group. Returns its birth."""
        self._require(self.can_start_play(design_group), "start_play", play_group)
        birth = self._add(self._agent, Group(play_group, self._birth()))
        self.release(design_group)
        self._designer.groups[design_group].wanted += 1
        return birth

    def can_admit_pool(self) -> bool:
        """Whether one more play from memory or the seed pool may start. Ask designs first."""
        return self._num_pool_plays() > 0

    def admit_pool(self, play_group: str) -> int:
        """Admit an agent group from memory or the seed pool. Returns its birth."""
        self._require(self.can_admit_pool(), "admit_pool", play_group)
        return self._add(self._agent, Group(play_group, self._birth(), is_from_pool=True))

    def expect_replays(self, num: int) -> None:
        """Keep so many of the designs' places free for replays at the version that comes next.

        Only while one is on its way: places that a take frees would else go to new designs before
        the version is there at which held designs may be played again.
        """
        is_coming = self._is_training or self.loaded_ordinal != self.learner_ordinal
        self._places.num_expected = num if is_coming else 0

    def can_admit_replay(self) -> bool:
        """Whether a held design may be played once more. Ask before new designs are admitted."""
        return self.is_open and self._places.replays(self.loaded_ordinal, self._next_step) > 0

    def admit_replay(self, play_group: str) -> int:
        """Admit an agent group of a held design's environment. Returns its birth."""
        self._require(self.can_admit_replay(), "admit_replay", play_group)
        return self._add(self._agent, Group(play_group, self._birth()))

    # What became of it -----------------------------------------------------------------------

    def ready(self, group_id: str) -> None:
        """All trained members are in (a designer group: all its plays too).

        A designer group whose designs are all invalid is ready, not dropped. Places it still holds
        are given back.
        """
        lane, group = self._find(group_id)
        if group.is_ready:
            raise ValueError(f"group {group_id!r} is ready already")
        self._places.num_reserved -= group.reserved
        group.reserved = 0
        lane.mark_ready(group)

    def hold(self, group_id: str) -> None:
        """A designer group is played, and is paid later."""
        self._find(group_id)[1].is_held = True

    def drop(self, group_id: str) -> None:
        """The group is missing as a whole (our fault, or cut): it leaves untrained.

        Plays that a dropped designer group has started stay.
        """
        lane, group = self._find(group_id)
        self._places.num_reserved -= group.reserved
        lane.remove(group)
        self._places.note_dropped(lane.role)

    def take(self) -> Take | Wait:
        """The groups of the next step, now in training; or what is waited for, by name."""
        wait = self._why_wait()
        if wait is not None:
            return wait
        taken = {
            lane.role: lane.oldest_mixed() if self._fills else lane.oldest_ready()
            for lane in self._lanes
        }
        for lane in self._lanes:
            for group in taken[lane.role]:
                lane.remove(group)
                self._in_training.append((lane.role, group))
        self._places.num_dropped.clear()
        self._is_training = True
        return Take(
            designer=[group.group_id for group in taken[Role.DESIGNER]],
            agent=[group.group_id for group in taken[Role.AGENT]],
        )

    def begin_replay(self) -> None:
        """The next step repeats a batch of the past, whose groups are not in the schedule."""
        if self._is_training or not self._num_replays:
            raise ValueError(
                f"begin_replay(): {self._num_replays} batches to train again, "
                f"{'one' if self._is_training else 'none'} in training"
            )
        self._num_replays -= 1
        self._is_training = True

    def step_finished(self, learner_ordinal: int) -> None:
        """The step in training ended (applied or set aside): its batch leaves, a version exists."""
        if not self._is_training or learner_ordinal != self.learner_ordinal + 1:
            raise ValueError(
                f"step_finished({learner_ordinal}): the schedule is at {self.learner_ordinal}, "
                f"{'with' if self._is_training else 'without'} a batch in training"
            )
        self.learner_ordinal = learner_ordinal
        self._in_training.clear()
        self._is_training = False

    def step_cancelled(self) -> None:
        """What was taken holds nothing that can be trained: its groups leave, no step is made."""
        self._in_training.clear()
        self._is_training = False

    def weights_loaded(self, ordinal: int) -> None:
        """A generator has loaded that version; older than the newest loaded one: no effect."""
        if ordinal > self.learner_ordinal:
            raise ValueError(f"weights_loaded({ordinal}): newest version is {self.learner_ordinal}")
        if self.loaded_ordinal is None or ordinal > self.loaded_ordinal:
            self.loaded_ordinal = ordinal

    # The rule --------------------------------------------------------------------------------

    def _why_wait(self) -> Wait | None:
        if self._is_training or self._num_replays:
            return Wait(WaitReason.TRAINING)
        agent, designer = self._agent, self._designer
        for lane in self._lanes:
            line = lane.failing_line(self.learner_ordinal)
            if line is not None:
                held = lane.oldest_held()
                if held is not None and held.birth <= line:
                    return Wait(WaitReason.HELD, lane.role, held.group_id)
                return self._wait(WaitReason.DEADLINE, lane)
        if self._fills and self._has_more_to_come():
            return self._wait(WaitReason.FILLING, agent if agent.num_running else designer)
        if agent.num_ready + designer.num_ready == 0:
            asleep = self._all_asleep()
            if asleep is not None:
                return Wait(WaitReason.HELD, Role.DESIGNER, asleep)
            return self._wait(WaitReason.NOTHING_READY, designer if designer.num_running else agent)
        if agent.num_ready >= agent.quota:
            return None
        if agent.quota <= self._agent_potential():
            return self._wait(WaitReason.FILLING, agent)
        is_alone = self._weights_are_coming and not agent.num_ready
        if designer.delay and (agent.num_running or self._places.num_reserved or is_alone):
            return self._wait(WaitReason.FILLING, agent)
        # With a delay, nothing that is admitted or played now is paid before the next take.
        if not designer.delay and (
            designer.num_ready < designer.quota <= len(designer) + self._num_designs()
        ):
            return self._wait(WaitReason.FILLING, designer)
        return None

    def _has_more_to_come(self) -> bool:
        """Whether something runs, or can be admitted now or once the newest weights are loaded.

        Held groups are not waited for: they are paid when a line needs them.
        """
        is_running = any(True for lane in self._lanes for _ in lane.awake())
        has_pool = self.pool_has_work and self._num_pool_plays() > 0
        return self._weights_are_coming or is_running or self._num_designs() > 0 or has_pool

    @property
    def _weights_are_coming(self) -> bool:
        """Whether more can be admitted once the newest version is loaded."""
        return self.is_open and self.loaded_ordinal != self.learner_ordinal

    def _all_asleep(self) -> str | None:
        """The oldest designer group, when time would stand still; else None.

        All that is outstanding are held groups, and nothing can be admitted.
        """
        if not len(self._designer) or len(self._agent) or self._places.num_reserved:
            return None
        if any(True for _ in self._designer.awake()):
            return None
        if self._weights_are_coming:
            return None
        if self._num_designs() or (self.pool_has_work and self._num_pool_plays()):
            return None
        return next(iter(self._designer.groups))

    def _wait(self, reason: WaitReason, lane: Lane) -> Wait:
        """Name the oldest running group of the role, or of designs when plays are yet to start."""
        group = next(lane.awake(), None)
        if group is None and self._places.num_reserved:
            group = next(self._designer.awake(), None)
        return Wait(reason, lane.role, group.group_id if group else None)

    def _agent_potential(self) -> int:
        """Most agent groups that can be ready before the next take."""
        admissible = self._num_designs() * self._places.group_size
        if self.pool_has_work:
            admissible += self._num_pool_plays()
        held = self._places.num_held
        return held + max(0, min(admissible, self._places.agent_limit - held))

    def _birth(self) -> int:
        assert self.loaded_ordinal is not None, "admission is closed before weights are loaded"
        return self.loaded_ordinal

    def _num_designs(self) -> int:
        return self._places.designs(self.loaded_ordinal, self._next_step) if self.is_open else 0

    def _num_pool_plays(self) -> int:
        return self._places.pool(self.loaded_ordinal, self._next_step) if self.is_open else 0

    @staticmethod
    def _require(allowed: bool, call: str, group_id: str) -> None:
        if not allowed:
            raise ValueError(f"{call}({group_id!r}): not allowed now; ask can_... first")
