"""How much to have in flight: a controller that is fed with measurements and says three limits.

Pure: no clock, no sockets. It never touches the staleness rule: a limit only holds work back that
the schedule could admit, never below a step's quota, and at least one task always goes. So neither
the bound nor progress depends on anything here.

**Groups, per role.** By Little's law the mean age of what is trained is outstanding groups / quota.
What lies ready behind every take, or waits for a generator all the time, makes nothing faster, only
older, so it is taken off the limit; a learner that waits while the limit is what keeps groups out
gets more, up to the bound.

**Sequences.** One decode step of n sequences takes a + b n seconds, so n / (a + b n) tokens per
second come out of an engine; beyond what saturates it, more sequences only make each of them
slower. a and b are fitted to what was measured, with forgetting; as long as the number in flight
has not varied enough to tell them apart, the engine counts as not saturated.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

STARVED = 0.03
"""Idle share of the learner from which it counts as waiting."""
SPARE = 0.5
"""Quotas that may lie ready behind a take; more is taken off the limit."""
CALM = 0.1
"""Share of the last steps that may have gone short for the limit to sink."""
_SMOOTH = 0.2
"""Weight of the newest step in that share."""
SATURATION = 0.98
"""The fewest sequences that give this share of the tokens/s at the cap are enough."""
_FORGET = 12
"""Steps that the fit of the engine looks back."""
_SPREAD = 0.1
"""Relative spread of the number in flight below which a and b cannot be told apart."""
_SURPRISE = 0.3
"""Relative distance from the fit at which a measurement is of another load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSeen:
    """One role in one learner step."""

    taken: int
    """Groups in the step."""
    left: int
    """Groups that were ready and not taken at its take."""
    held: bool
    """Whether the limit alone kept a group out since the step before, with generators free."""
    queued: int = 0
    """Groups that waited for a generator all through the step: the fewest at any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeen:
    """What was measured over one learner step; None where nothing was."""

    learner_idle_share: float | None
    """Part of the step in which the learner waited for groups (not for messages or disks)."""
    agent: RoleSeen
    designer: RoleSeen
    active: float | None
    """Mean requests being decoded, per generator, while it decoded."""
    tokens_per_s: float | None
    """Sampled tokens per second of decoding, per generator."""
    in_flight: float | None
    """Mean sequences held, per generator."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be in flight, and why."""

    sequences: int
    """Per generator: seeds of its plays and designs that are not in."""
    agents: int
    """Agent groups outstanding, reserved places included."""
    designs: int
    """Designer groups outstanding."""
    reason: str


class InFlightController:
    """See the module. `step` after every learner step; `limits` is the present choice."""

    def __init__(
        self,
        *,
        most_sequences: int,
        agent_quota: int,
        most_agents: int,
        designer_quota: int,
        most_designs: int,
    ) -> None:
        """Start with everything allowed.

        Args:
            most_sequences: cap per generator; more could only queue there.
            agent_quota: agent groups of a full step.
            most_agents: agent places that the bound allows.
            designer_quota: designer groups of a full step.
            most_designs: designer groups that the bound allows.
        """
        self._cap = max(1, most_sequences)
        self._agents = _Groups("agent", agent_quota, most_agents)
        self._designs = _Groups("designer", designer_quota, most_designs)
        self._engine = EngineFit(_FORGET)
        self.limits = Limits(self._cap, most_agents, most_designs, "nothing measured yet")

    def step(self, seen: StepSeen) -> Limits:
        """Take in one step; gives the limits from now on."""
        if seen.active and seen.tokens_per_s:
            self._engine.add(seen.active, seen.tokens_per_s)
        idle = seen.learner_idle_share
        is_starved = idle is not None and idle >= STARVED
        is_short = seen.designer.taken < self._designs.quota
        agents = self._agents.step(seen.agent, short=is_starved, hurry=idle or 0.0)
        designs = self._designs.step(seen.designer, short=is_short, hurry=0.0)
        sequences, why = self._sequences(seen, is_starved=is_starved)
        known = "not known" if idle is None else f"{idle:.0%}"
        reason = f"learner idle {known}; {self._agents.reason}; {self._designs.reason}; {why}"
        self.limits = Limits(sequences, agents, designs, reason)
        return self.limits

    def _sequences(self, seen: StepSeen, *, is_starved: bool) -> tuple[int, str]:
        per_active = 1.0
        if seen.active and seen.in_flight:
            per_active = max(1.0, seen.in_flight / seen.active)
        wanted = self._engine.enough(self._cap / per_active)
        if wanted is None:
            return self._cap, f"sequences {self._cap}: all, saturation of the engine is not known"
        enough = min(self._cap, math.ceil(wanted * per_active))
        return enough, f"sequences {enough} of {self._cap} saturate the engine"


class _Groups:
    """The limit of one role's outstanding groups."""

    def __init__(self, name: str, quota: int, most: int) -> None:
        self._name = name
        self.quota = quota
        self._most = most
        self._limit = most
        self._left: deque[int] = deque(maxlen=3)
        self._queued: deque[int] = deque(maxlen=3)
        self._shortage = 0.0
        self.reason = ""

    def step(self, seen: RoleSeen, *, short: bool, hurry: float) -> int:
        """The limit after one step; `hurry` in [0, 1] makes it grow faster."""
        before = self._limit
        self._left.append(seen.left)
        self._queued.append(seen.queued)
        self._shortage += _SMOOTH * (short - self._shortage)
        spare = min(self._left) - math.ceil(SPARE * self.quota)
        surplus = min(self._queued) - math.ceil(SPARE * self.quota / 2)
        if short and seen.held:
            grown = before + math.ceil(max(self.quota / 4, before * hurry))
            self._limit = min(grown, self._most)
            self._left.clear()
            self._queued.clear()
            why = f"were held back while the step went short, limit {before} -> {self._limit}"
        elif surplus > 0 and len(self._queued) == self._queued.maxlen:
            self._limit = max(before - math.ceil(surplus / 2), self.quota)
            self._queued.clear()
            why = f"always waited for a generator, limit {before} -> {self._limit}"
        elif spare > 0 and len(self._left) == self._left.maxlen and self._shortage < CALM:
            self._limit = max(before - math.ceil(spare / 2), self.quota)
            self._left.clear()
            why = f"lay ready unused, limit {before} -> {self._limit}"
        else:
            why = f"limit {before} of {self._most} kept"
        self.reason = f"{self._name} groups {why}"
        return self._limit


class EngineFit:
    """Least squares of the time of a decode step, a + b n, over the last measurements."""

    def __init__(self, length: int) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=length)

    def add(self, active: float, tokens_per_s: float) -> None:
        """One measurement: so many requests gave so many tokens per second."""
        step_s = active / tokens_per_s
        line = self._line()
        if line is not None:
            expected = line[0] + line[1] * active
            if abs(step_s - expected) > _SURPRISE * expected:
                # Another load: what was measured before says nothing about it.
                self._seen.clear()
        self._seen.append((active, step_s))

    def enough(self, cap: float) -> float | None:
        """The fewest requests with `SATURATION` of the tokens/s of `cap`; None when unknown."""
        line = self._line()
        if line is None:
            return None
        base, slope = line
        # n / (a + b n) = SATURATION * cap / (a + b cap), solved for n.
        rate = SATURATION * cap / (base + slope * cap)
        return max(1.0, rate * base / (1.0 - rate * slope))

    def _line(self) -> tuple[float, float] | None:
        """(a, b), both at least 0; None while too little or too similar was measured."""
        if len(self._seen) < 3:
            return None
        mean_n = sum(n for n, _ in self._seen) / len(self._seen)
        mean_t = sum(t for _, t in self._seen) / len(self._seen)
        spread = sum((n - mean_n) ** 2 for n, _ in self._seen)
        if spread < len(self._seen) * (_SPREAD * mean_n) ** 2:
            return None
        slope = sum((n - mean_n) * (t - mean_t) for n, t in self._seen) / spread
        slope = min(max(slope, 0.0), mean_t / mean_n)
        return mean_t - slope * mean_n, slope
