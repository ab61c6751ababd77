"""Both roles in virtual time, driven by the coordinator's own `Schedule`.

What the coordinator does after every message, this does after every event: pay and replay what
waits for its pay (`held.py`); start plays of valid designs, oldest first; admit designs, then pool
plays; send tasks by credit; take a batch. No sockets, no jail, no model: how long things take
comes from a `Workload`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from spade_async.coordinator.dispatch import DESIGN, PLAY
from spade_async.coordinator.inflight import InFlightController
from spade_async.coordinator.schedule import Schedule, Take, Wait, WaitReason
from spade_async.simulate.control import Control
from spade_async.simulate.durations import mean
from spade_async.simulate.fleet import Fleet, FleetTimes, SimTask
from spade_async.simulate.held import Held, SimGroup
from spade_async.simulate.timeline import Timeline
from spade_async.simulate.workload import Design, Play, Workload
from spade_async.types import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoRoleSetting:
    """What a run could be set to; the names are those of the configuration."""

    agent_bound: int
    designer_bound: int
    agent_quota: int
    """agent.groups_per_step"""
    designer_quota: int
    """designer.groups_per_step"""
    group_size: int
    """designer.group_size"""
    pool_share: float
    slots: int
    """engine.slots: of one generator."""
    generators: int = 1
    credit: int = 1_000_000
    """generator.concurrent_tasks"""
    delay: int = 0
    """designer.reward.delay"""
    learner_speed: float = 1.0
    """A learner of speed 2 needs half the time per step."""
    most_sequences: int | None = None
    """Cap of the in-flight controller, per generator; None switches it off (async.controller)."""
    fill: bool = False
    """async.fill"""
    latency_s: float = 0.0
    """From the coordinator's decision to the first token of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoRoleResult:
    """What came out, over the steps after the warm-up; None where nothing of a role was trained."""

    step_s: float
    learner_idle_share: float
    generator_idle_share: float
    """A generator has nothing to decode."""
    slots_free_share: float
    """Slots without a request."""
    slots_full_share: float
    """A generator has no slot (or no credit) for work that waits."""
    bound_wait_share: float
    """Generators have room and the schedule lets no task out."""
    agent_mean_age: float | None
    agent_max_age: int | None
    designer_mean_age: float | None
    designer_max_age: int | None
    num_over_bound: int
    num_discarded: int
    """Finished groups that were never trained and cannot be any more."""
    rollouts_per_hour: float
    """Episodes finished, both arms."""
    trained_groups_per_step: float


@dataclass(slots=True)
class _Count:
    """Sums since the warm-up."""

    setting: TwoRoleSetting
    since_s: float = 0.0
    learner_s: float = 0.0
    num_discarded: int = 0
    ages: dict[Role, list[int]] = field(default_factory=lambda: {role: [] for role in Role})

    def result(self, times: FleetTimes, now_s: float, num_steps: int) -> TwoRoleResult:
        """The figures."""
        setting, span_s = self.setting, now_s - self.since_s
        agent, designer = self.ages[Role.AGENT], self.ages[Role.DESIGNER]
        generator_s = span_s * setting.generators
        over = sum(age > setting.agent_bound for age in agent)
        over += sum(age > setting.designer_bound for age in designer)
        return TwoRoleResult(
            step_s=span_s / num_steps,
            learner_idle_share=max(1.0 - self.learner_s / span_s, 0.0),
            generator_idle_share=times.idle_s / generator_s,
            slots_free_share=max(1.0 - times.slot_s / (generator_s * setting.slots), 0.0),
            slots_full_share=times.full_s / generator_s,
            bound_wait_share=times.starved_s / span_s,
            agent_mean_age=mean(agent) if agent else None,
            agent_max_age=max(agent, default=None),
            designer_mean_age=mean(designer) if designer else None,
            designer_max_age=max(designer, default=None),
            num_over_bound=over,
            num_discarded=self.num_discarded,
            rollouts_per_hour=times.episodes / span_s * 3600.0,
            trained_groups_per_step=(len(agent) + len(designer)) / num_steps,
        )


class TwoRoles:
    """One simulation. `run` may be called once."""

    def __init__(self, setting: TwoRoleSetting, workload: Workload) -> None:
        """Nothing has happened; the first weights are loaded.

        Raises:
            ConfigError: a design group's plays would never fit the agent's places.
        """
        self._setting, self._workload = setting, workload
        self.schedule = Schedule(
            agent_bound=setting.agent_bound,
            designer_bound=setting.designer_bound,
            agent_quota=setting.agent_quota,
            designer_quota=setting.designer_quota,
            group_size=setting.group_size,
            pool_share=setting.pool_share,
            fill=setting.fill,
            designer_delay=setting.delay,
        )
        self.schedule.weights_loaded(0)
        self.timeline = Timeline(self._pass_time)
        self.fleet = Fleet(
            self.timeline,
            generators=setting.generators,
            slots=setting.slots,
            credit=setting.credit,
            latency_s=setting.latency_s,
        )
        self._control = self._make_control()
        self._groups: dict[str, SimGroup] = {}
        self._held = Held(setting.delay, self.schedule, self._groups)
        self._num_samples: dict[str, int] = {}
        """Trained samples of each group that is not trained."""
        self._num_designs = self._num_groups = self._num_pool_plays = self._num_batches = 0
        self._ready: set[str] = set()
        self._step = 0
        self._is_training = False
        self._has_news = True
        """Whether something happened that the schedule may answer to; one episode more does not."""
        self._count = _Count(setting)
        self.step_ends_s: list[float] = []
        """When each step ended."""
        self.waits_for = ""
        """What the next batch waits for, by name."""

    def _make_control(self) -> Control | None:
        setting = self._setting
        if setting.most_sequences is None:
            return None
        controller = InFlightController(
            most_sequences=setting.most_sequences,
            agent_quota=setting.agent_quota,
            most_agents=(setting.agent_bound + 1) * setting.agent_quota,
            designer_quota=setting.designer_quota,
            most_designs=(setting.designer_bound + 1) * setting.designer_quota,
        )
        return Control(controller, self.schedule, self.fleet, setting.generators)

    def _pass_time(self, seconds: float) -> None:
        self.fleet.pass_time(seconds)
        if self._control is not None:
            self._control.pass_time(seconds)

    def run(self, steps: int, *, warm_up: int = 0) -> TwoRoleResult:
        """So many steps; figures are of those after the first `warm_up`."""
        if not 0 <= warm_up < steps:
            raise ValueError(f"warm_up={warm_up} must be at least 0 and below steps={steps}")
        self._let_out()
        while self._step < steps:
            step = self._step
            assert self.timeline.step(), f"everyone waits at step {step}: {self.waits_for}"
            if self._step == warm_up > step:
                self._count = _Count(self._setting, since_s=self.timeline.now_s)
                self.fleet.times = FleetTimes()
            if self._has_news and not self.timeline.is_due:
                self._let_out()
        open_groups = {row.group_id for row in self.schedule.snapshot()}
        self._count.num_discarded = len(self._ready - open_groups)
        return self._count.result(self.fleet.times, self.timeline.now_s, steps - warm_up)

    def _let_out(self) -> None:
        """All that is allowed now, in the coordinator's order."""
        self._has_news = False
        if self._setting.delay:
            for group in self._held.due():
                self._paid(group)
            self._replay()
        self._start_waiting()
        while self.schedule.can_admit_design():
            self._admit_design()
        while self.schedule.can_admit_pool():
            self._admit_pool()
        self.fleet.pump()
        if self._control is not None:
            self._control.turn()
        if not self._is_training:
            self._take()

    def _admit_design(self) -> None:
        group_id = f"d-{self._num_groups}"
        size = self._setting.group_size
        group = SimGroup(group_id, self._num_groups, pending=size)
        self._num_groups += 1
        self.schedule.admit_design(group_id)
        self._groups[group_id] = group
        self._num_samples[group_id] = size
        for number in range(self._num_designs, self._num_designs + size):
            design = self._workload.design(number)
            task = SimTask((design.piece,), partial(self._written, group, number, design))
            self.fleet.submit(task, kind=DESIGN, number=group.number)
        self._num_designs += size

    def _written(self, group: SimGroup, number: int, design: Design) -> None:
        self._has_news = True
        if design.is_played:
            group.waiting.append(number)
        else:
            self.schedule.release(group.group_id)
            self._resolve(group)

    def _start_waiting(self) -> None:
        for group in self._groups.values():
            while group.waiting and self.schedule.can_start_play(group.group_id):
                number = group.waiting.pop(0)
                play_id = f"{group.group_id}.{number}.play"
                birth = self.schedule.start_play(group.group_id, play_id)
                group.num_playing += 1
                played = partial(self._played, group, number, birth)
                self._play(play_id, self._workload.play(number), group.number, played)

    def _replay(self) -> None:
        """Held designs once more, then their places are kept for the next version."""
        for group, number, offset in self._held.wanted():
            if not self.schedule.can_admit_replay():
                break
            play_id = f"{group.group_id}.{number}.o{offset}"
            self.schedule.admit_replay(play_id)
            done = self._held.begin(group, number, offset)
            self._play(play_id, self._workload.replay(number, offset), group.number, done)
        self.schedule.expect_replays(self._held.num_expected)

    def _play(self, play_id: str, play: Play, number: int, done: Callable[[], None]) -> None:
        """`done` is called when nothing more of it is to come."""
        self._num_samples[play_id] = len(play.plain)
        self._play_block(play_id, play, 0, number, done)

    def _play_block(
        self, play_id: str, play: Play, start: int, number: int, done: Callable[[], None]
    ) -> None:
        """Both arms from pair `start` on; the next block goes out when both are in."""
        end = min(start + play.block, len(play.plain)) if play.block else len(play.plain)
        is_last = end == len(play.plain)
        arms_left = 1 + bool(play.hinted)

        def arm_is_in(*, is_trained: bool) -> None:
            nonlocal arms_left
            self._has_news = True
            arms_left -= 1
            if is_trained and is_last and not play.is_stopped:
                self._mark_ready(play_id)
            if arms_left:
                return
            if not is_last:
                self._play_block(play_id, play, end, number, done)
                return
            if play.is_dropped:
                self.schedule.drop(play_id)
                del self._num_samples[play_id]
            elif play.is_stopped:
                self._mark_ready(play_id)
            done()

        for pieces, is_trained in ((play.plain[start:end], True), (play.hinted[start:end], False)):
            if pieces:
                task = SimTask(pieces, partial(arm_is_in, is_trained=is_trained), is_play=True)
                self.fleet.submit(task, kind=PLAY, number=number)

    def _admit_pool(self) -> None:
        number = self._num_pool_plays
        self._num_pool_plays += 1
        play_id = f"m-{number}"
        self.schedule.admit_pool(play_id)
        self._play(play_id, self._workload.pool_play(number), self._num_groups, lambda: None)

    def _played(self, group: SimGroup, number: int, birth: int) -> None:
        """All episodes of a design are in: it is paid, or waits for its pay."""
        group.num_playing -= 1
        if self._setting.delay:
            group.hold(number, birth)
        self._resolve(group)

    def _resolve(self, group: SimGroup) -> None:
        """One more design is rejected, or all its episodes are in."""
        group.pending -= 1
        if group.pending:
            return
        if group.held:
            self.schedule.hold(group.group_id)
        else:
            self._paid(group)

    def _paid(self, group: SimGroup) -> None:
        del self._groups[group.group_id]
        self._mark_ready(group.group_id)

    def _mark_ready(self, group_id: str) -> None:
        self.schedule.ready(group_id)
        self._ready.add(group_id)

    def _take(self) -> None:
        take = self._next()
        if isinstance(take, Wait):
            self.waits_for = f"{take.reason} {take.role} {take.waits_for}"
            return
        if self._control is not None:
            self._control.taken(take, self.timeline.now_s)
        num_samples = 0
        for role, group_ids in ((Role.DESIGNER, take.designer), (Role.AGENT, take.agent)):
            for group_id in group_ids:
                self._ready.remove(group_id)
                num_samples += self._num_samples.pop(group_id)
                self._count.ages[role].append(self.schedule.age(group_id))
        self._train(num_samples)

    def _next(self) -> Take | Wait:
        """What the schedule says, after paying what it cannot do without."""
        take = self.schedule.take()
        while isinstance(take, Wait) and take.reason is WaitReason.HELD:
            assert take.waits_for is not None
            self._paid(self._groups[take.waits_for])
            take = self.schedule.take()
        return take

    def _train(self, num_samples: int) -> None:
        """A batch is with the learner."""
        busy_s = self._workload.learner_s(self._step, num_samples) / self._setting.learner_speed
        self._count.learner_s += busy_s
        self._is_training = True
        self._num_batches += 1
        self.timeline.after(busy_s, partial(self._step_ended, self._num_batches))

    def _step_ended(self, number: int) -> None:
        if number != self._num_batches or not self._is_training:
            return  # the learner died over it
        self._step += 1
        self._is_training = False
        self._has_news = True
        self.schedule.step_finished(self._step)
        self.step_ends_s.append(self.timeline.now_s)
        if self._control is not None:
            self._control.step(self.timeline.now_s)
        swap_s = self._workload.swap_s(self._step)
        self.timeline.after(swap_s, partial(self._loaded, self._step))

    def _loaded(self, ordinal: int) -> None:
        self.schedule.weights_loaded(ordinal)
        self._has_news = True
