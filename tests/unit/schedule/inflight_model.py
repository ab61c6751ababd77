"""A small event model for the controller: one engine, one learner, the real `Schedule`.

Sequences share the engine: one decode step of n of them takes a + b n seconds and gives each one
token. A design is one sequence, a play one per seed and arm. The learner takes a fixed time a step.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from schedule_world import Setup

from spade_async.coordinator.inflight import InFlightController, Limits, RoleSeen, StepSeen
from spade_async.coordinator.schedule import Take
from spade_async.types import Role


@dataclass
class Task:
    group: str
    design: str | None
    lengths: list[float]
    trained: bool = True


@dataclass
class Load:
    """What there is to do."""

    setup: Setup
    learner_s: float
    tokens: float = 100.0
    """Mean length of a sequence; log-normal with sigma 1."""
    base_s: float = 0.01
    per_sequence_s: float = 0.0
    seeds: int = 4
    validity: float = 0.9
    cap: int = 128


@dataclass
class Seen:
    steps: list[float] = field(default_factory=list)
    """Time at which each step ended."""
    ages: dict[str, list[int]] = field(default_factory=lambda: {"designer": [], "agent": []})
    limits: list[Limits] = field(default_factory=list)

    def rate(self, first: int, last: int) -> float:
        """Steps per second between two steps."""
        return (last - first) / (self.steps[last] - self.steps[first])


def simulate(
    load: Load,
    num_steps: int,
    *,
    limit: int | None,
    seed: int = 1,
    change: Callable[[int, Load], None] = lambda step, load: None,
) -> Seen:
    """Run so many steps at a fixed limit, or under the controller when `limit` is None."""
    return _Model(load, random.Random(seed), limit).run(num_steps, change)


class _Model:
    def __init__(self, load: Load, rng: random.Random, limit: int | None) -> None:
        self.load, self.rng = load, rng
        setup = load.setup
        self.schedule = setup.schedule()
        self.schedule.weights_loaded(0)
        self.controller = None
        if limit is None:
            self.controller = InFlightController(
                most_sequences=load.cap,
                agent_quota=setup.agent_quota,
                most_agents=(setup.agent_bound + 1) * setup.agent_quota,
                designer_quota=setup.designer_quota,
                most_designs=(setup.designer_bound + 1) * setup.designer_quota,
            )
        self.limit = limit or load.cap
        self.now = self.work = 0.0
        self.running: list[tuple[float, int, Task]] = []
        self.queue: list[tuple[int, int, Task]] = []
        self.order = 0
        self.designs: dict[str, dict] = {}
        self.left: dict[str, int] = {}
        self.births: dict[str, int] = {}
        self.learning: float | None = None
        self.taken: Take | None = None
        self.seen = Seen()
        self.clear()

    def clear(self) -> None:
        self.waited = self.busy_s = self.tokens = self.area = 0.0
        self.since = self.now
        self.agents_left = self.designs_left = 0
        self.held: set[Role] = set()
        self.queued: int | None = None

    # -- coordinator

    def coordinate(self) -> None:
        schedule, load = self.schedule, self.load
        for name in sorted(self.designs, key=lambda d: int(d[1:])):
            design = self.designs[name]
            while design["waiting"] and schedule.can_start_play(name):
                design["waiting"] -= 1
                design["plays"] += 1
                self.open(name, schedule.start_play)
        while schedule.can_admit_design():
            name = self.name("d")
            self.births[name] = schedule.admit_design(name)
            size = load.setup.group_size
            self.designs[name] = {"writing": size, "waiting": 0, "plays": 0}
            for _ in range(size):
                self.submit(Task(name, None, [self.length()]), 1)
        while schedule.can_admit_pool():
            self.open(None, lambda _, play: schedule.admit_pool(play))
        while self.queue and len(self.running) < self.limit:
            _, _, task = heapq.heappop(self.queue)
            for length in task.lengths:
                self.order += 1
                heapq.heappush(self.running, (self.work + length, self.order, task))
        plays = sum(kind == 0 for kind, _, _ in self.queue)
        self.queued = plays if self.queued is None else min(plays, self.queued)
        if not self.queue:
            self.held |= schedule.held_by_limit()
        if self.learning is None:
            take = schedule.take()
            if isinstance(take, Take):
                self.note(take)
                self.learning = self.now + load.learner_s
                counts = schedule.counts()
                self.agents_left, self.designs_left = (
                    counts["agent_ready"],
                    counts["designer_ready"],
                )
                self.taken = take

    def open(self, design: str | None, admit: Callable[[str, str], int]) -> None:
        play = self.name("p")
        self.births[play] = admit(design or "", play)
        self.left[play] = self.load.seeds
        self.submit(Task(play, design, [self.length() for _ in range(self.load.seeds)]), 0)
        if design is not None:
            hinted = [self.length() for _ in range(self.load.seeds)]
            self.designs[design]["plays"] += 0
            self.left[play + "h"] = self.load.seeds
            self.submit(Task(play + "h", design, hinted, trained=False), 0)

    def note(self, take: Take) -> None:
        for role, groups in (("designer", take.designer), ("agent", take.agent)):
            self.seen.ages[role] += [self.schedule.learner_ordinal - self.births[g] for g in groups]

    def submit(self, task: Task, kind: int) -> None:
        self.order += 1
        heapq.heappush(self.queue, (kind, self.order, task))

    def name(self, prefix: str) -> str:
        self.order += 1
        return f"{prefix}{self.order}"

    def length(self) -> float:
        return self.load.tokens * self.rng.lognormvariate(-0.5, 1.0)

    # -- time

    def run(self, num_steps: int, change: Callable[[int, Load], None]) -> Seen:
        self.coordinate()
        while len(self.seen.steps) < num_steps:
            n = len(self.running)
            step_s = self.load.base_s + self.load.per_sequence_s * n
            ends = self.now + (self.running[0][0] - self.work) * step_s if n else float("inf")
            learned = self.learning if self.learning is not None else float("inf")
            assert min(ends, learned) < float("inf"), "everyone waits"
            self.pass_time(min(ends, learned), n, step_s)
            if ends <= learned:
                _, _, task = heapq.heappop(self.running)
                self.ended(task)
            else:
                self.learned(change)
            self.coordinate()
        return self.seen

    def pass_time(self, until: float, n: int, step_s: float) -> None:
        span = until - self.now
        self.now = until
        if n:
            self.work += span / step_s
            self.busy_s += span
            self.tokens += n * span / step_s
            self.area += n * span
        self.waited += span * (self.learning is None)

    def ended(self, task: Task) -> None:
        if task.group in self.designs:
            design = self.designs[task.group]
            design["writing"] -= 1
            if self.rng.random() < self.load.validity:
                design["waiting"] += 1
            else:
                self.schedule.release(task.group)
            self.close(task.group)
            return
        self.left[task.group] -= 1
        if self.left[task.group]:
            return
        del self.left[task.group]
        if task.trained:
            self.schedule.ready(task.group)
        twin = task.group + "h" if task.trained else task.group[:-1]
        if task.design is not None and twin not in self.left:
            self.designs[task.design]["plays"] -= 1
            self.close(task.design)

    def close(self, name: str) -> None:
        if not any(self.designs[name].values()):
            del self.designs[name]
            self.schedule.ready(name)

    def learned(self, change: Callable[[int, Load], None]) -> None:
        self.learning = None
        step = self.schedule.learner_ordinal + 1
        self.schedule.step_finished(step)
        self.schedule.weights_loaded(step)
        self.seen.steps.append(self.now)
        change(step, self.load)
        if self.controller is not None:
            limits = self.controller.step(self.measured())
            self.limit = limits.sequences
            self.schedule.limit(agents=limits.agents, designs=limits.designs)
            self.seen.limits.append(limits)
        self.clear()

    def measured(self) -> StepSeen:
        span = max(self.now - self.since, 1e-9)
        assert self.taken is not None
        busy = self.busy_s or None
        return StepSeen(
            learner_idle_share=self.waited / span,
            agent=RoleSeen(
                taken=len(self.taken.agent),
                left=self.agents_left,
                held=Role.AGENT in self.held,
                queued=(self.queued or 0) // 2,
            ),
            designer=RoleSeen(
                taken=len(self.taken.designer),
                left=self.designs_left,
                held=Role.DESIGNER in self.held,
            ),
            active=self.area / busy if busy else None,
            tokens_per_s=self.tokens / busy if busy else None,
            in_flight=self.area / span,
        )
