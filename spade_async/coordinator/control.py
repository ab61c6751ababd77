"""Feeds the in-flight controller with what the coordinator sees, and carries out what it says.

With `async.controller = false` nothing is limited beyond the bound and the generators' credit.
"""

from __future__ import annotations

import logging
import time

from spade_async.config.schema import Config
from spade_async.coordinator.core import Core
from spade_async.coordinator.inflight import InFlightController, RoleSeen, StepSeen
from spade_async.coordinator.schedule import Take
from spade_async.coordinator.watch import Watch
from spade_async.types import Arm, Role

log = logging.getLogger(__name__)

_MARGIN = 1.25
"""Sequences beyond slots or workers, so that none of these waits for the next task to arrive."""


def most_sequences(config: Config) -> int:
    """Sequences a generator can work on, and some that wait next to it."""
    seeds = config.agent.seeds_per_environment
    useful = int(max(config.engine.slots, config.sandbox.workers) * _MARGIN) + seeds
    return min(useful, config.generator.concurrent_tasks * seeds)


class Control:
    """Owns the controller and the measurements since the last learner step."""

    def __init__(self, core: Core, watch: Watch) -> None:
        self._core = core
        self._watch = watch
        config = core.config
        agent_bound, designer_bound = config.async_.bounds
        self._controller = InFlightController(
            most_sequences=most_sequences(config),
            agent_quota=config.agent.groups_per_step,
            most_agents=(agent_bound + 1) * config.agent.groups_per_step,
            designer_quota=config.designer.groups_per_step,
            most_designs=(designer_bound + 1) * config.designer.groups_per_step,
        )
        self._is_on = config.async_.controller and not config.async_.fill
        if self._is_on:
            core.dispatcher.limit = self._controller.limits.sequences
        self.holds_now = False
        """Whether the controller, and not the bound, keeps work from idle generators."""
        self.news: str | None = None
        """Why the last step changed the limits; None when it did not."""
        self._taken: dict[Role, tuple[int, int]] | None = None
        """Groups taken and left ready at the last take; None after a replayed batch."""
        self._clear()

    def _clear(self) -> None:
        self._held: set[Role] = set()
        self._queued: int | None = None
        """Fewest plays that waited for a generator at any time."""
        self._sequence_s = self._waited_s = 0.0
        self._since_s = self._turn_s = time.monotonic()

    def turn(self, *, learner_waits: bool) -> None:
        """Look at the schedule and the dispatcher; once per turn of the coordinator's loop.

        Args:
            learner_waits: the learner is idle and the schedule had no batch for it.
        """
        now = time.monotonic()
        span = now - self._turn_s
        self._sequence_s += self._core.dispatcher.num_sequences * span
        self._waited_s += learner_waits * span
        self._turn_s = now
        queued = self._core.dispatcher.num_plays_waiting
        self._queued = queued if self._queued is None else min(self._queued, queued)
        self.holds_now = False
        if self._is_on and not self._core.dispatcher.num_waiting:
            # With tasks in the queue it is the generators that are slow, not the limit.
            held = self._core.schedule.held_by_limit()
            self.holds_now = bool(held)
            self._held |= held

    def taken(self, take: Take) -> None:
        """A batch was taken: what did it leave ready behind it?"""
        left = self._core.schedule.counts()
        self._taken = {
            Role.AGENT: (len(take.agent), left["agent_ready"]),
            Role.DESIGNER: (len(take.designer), left["designer_ready"]),
        }

    def step(self) -> dict[str, float]:
        """A learner step is done: choose anew. Gives the metrics."""
        span = max(time.monotonic() - self._since_s, 1e-9)
        in_flight = self._sequence_s / span
        if self._is_on and self._taken is not None:
            self._choose(self._taken, self._waited_s / span, in_flight)
        else:
            self.news = None
        self._taken = None
        self._clear()
        limits = self._controller.limits
        metrics = {"async/in_flight": in_flight}
        if self._is_on:
            metrics |= {
                "async/in_flight_limit": float(limits.sequences * self._generators),
                "async/agent_limit": float(limits.agents),
                "async/designer_limit": float(limits.designs),
            }
        return metrics

    @property
    def _generators(self) -> int:
        return self._core.config.generator.count

    def _choose(
        self, taken: dict[Role, tuple[int, int]], waited_share: float, in_flight: float
    ) -> None:
        core, load = self._core, self._watch.engine_load
        # A designed environment has a play in either arm.
        queued = {Role.AGENT: (self._queued or 0) // len(Arm)}
        roles = {
            role: RoleSeen(
                taken=num, left=left, held=role in self._held, queued=queued.get(role, 0)
            )
            for role, (num, left) in taken.items()
        }
        before = self._controller.limits
        limits = self._controller.step(
            StepSeen(
                learner_idle_share=waited_share,
                agent=roles[Role.AGENT],
                designer=roles[Role.DESIGNER],
                active=None if load is None else load.active,
                tokens_per_s=None if load is None else load.tokens_per_s,
                in_flight=in_flight / self._generators,
            )
        )
        core.schedule.limit(agents=limits.agents, designs=limits.designs)
        core.dispatcher.limit = limits.sequences
        changed = (before.agents, before.designs) != (limits.agents, limits.designs)
        self.news = limits.reason if changed else None
        if self.news is not None:
            log.info("in flight: %s", self.news)
