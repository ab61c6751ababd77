"""The in-flight controller in virtual time: fed as `coordinator/control.py` feeds it.

Engines here are not slower with more requests, so nothing is said about saturation, and the number
of sequences stays at its cap; the limits on groups are the controller's own.
"""

from __future__ import annotations

from spade_async.coordinator.inflight import InFlightController, RoleSeen, StepSeen
from spade_async.coordinator.schedule import Schedule, Take
from spade_async.simulate.fleet import Fleet
from spade_async.types import Role


class Control:
    """Measures between two steps, then sets the limits of schedule and fleet."""

    def __init__(
        self, controller: InFlightController, schedule: Schedule, fleet: Fleet, generators: int
    ) -> None:
        self._controller = controller
        self._schedule, self._fleet, self._generators = schedule, fleet, generators
        self._taken: dict[Role, tuple[int, int]] = {}
        self._held: set[Role] = set()
        self._sequence_s = 0.0
        self._step_ended_s = 0.0
        self._batch_waited_s = 0.0
        fleet.limit = controller.limits.sequences

    def pass_time(self, span_s: float) -> None:
        """So long nothing changed."""
        self._sequence_s += self._fleet.num_sequences * span_s

    def turn(self) -> None:
        """All that is allowed has been let out: is it the limit that keeps more from coming?"""
        if len(self._held) < len(Role) and not self._fleet.num_waiting:
            self._held |= self._schedule.held_by_limit()

    def taken(self, take: Take, now_s: float) -> None:
        """A batch goes to the learner."""
        left = self._schedule.counts()
        self._taken = {
            Role.AGENT: (len(take.agent), left["agent_ready"]),
            Role.DESIGNER: (len(take.designer), left["designer_ready"]),
        }
        self._batch_waited_s = now_s - self._step_ended_s

    def step(self, now_s: float) -> None:
        """Its step ended."""
        span_s = now_s - self._step_ended_s
        roles = {
            role: RoleSeen(taken=num, left=left, held=role in self._held)
            for role, (num, left) in self._taken.items()
        }
        limits = self._controller.step(
            StepSeen(
                learner_idle_share=self._batch_waited_s / span_s if span_s > 0.0 else None,
                agent=roles[Role.AGENT],
                designer=roles[Role.DESIGNER],
                active=None,
                tokens_per_s=None,
                in_flight=self._sequence_s / span_s / self._generators if span_s > 0.0 else None,
            )
        )
        self._schedule.limit(agents=limits.agents, designs=limits.designs)
        self._fleet.limit = limits.sequences
        self._held.clear()
        self._sequence_s = 0.0
        self._step_ended_s = now_s
