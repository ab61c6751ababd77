"""Learning potential: how far an environment's mean return is from the level of its skill.

    raw = |mean of all returns - mu_slow|
    mu_fast <- (1 - gamma_fast) mu_fast + gamma_fast r,  mu_slow likewise, both start at the first r
    potential of a skill = |mu_fast - mu_slow| / (2 (gamma_fast - gamma_slow))

A larger gamma is the faster one here; gamma_fast > gamma_slow. The level of a skill is read before
its group's own returns move it, once per group with the mean of all its returns; before the first
group there is no level, and no pay. Needs no hint and no delay.

Source: SPADE's code (variant `learning_potential`, gammas .98 and .85), which takes an unknown
level as 0, so that its first designs are paid for being easy, and moves the level before it reads
it when the pay is delayed. Use it where hints mislead (small models): it pays for what differs from
the usual, in either direction, and so needs the novelty and validity guards more than regret does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spade_async.designer.rewards.facts import Baselines, Facts, Raw, missing


class PotentialTracker:
    """Fast and slow average of one skill's returns."""

    def __init__(self, *, gamma_fast: float, gamma_slow: float) -> None:
        """Nothing observed yet.

        Raises:
            ValueError: unless 0 < gamma_slow < gamma_fast <= 1.
        """
        if not 0.0 < gamma_slow < gamma_fast <= 1.0:
            raise ValueError(
                f"gamma_slow={gamma_slow}, gamma_fast={gamma_fast}: the fast one must be larger, "
                "both in (0, 1]"
            )
        self.gamma_fast = gamma_fast
        self.gamma_slow = gamma_slow
        self.fast: float | None = None
        self.slow: float | None = None

    def update(self, value: float) -> float:
        """Take in one mean return; the potential after it (0 after the first)."""
        if self.fast is None or self.slow is None:
            self.fast = self.slow = value
            return 0.0
        self.fast += self.gamma_fast * (value - self.fast)
        self.slow += self.gamma_slow * (value - self.slow)
        return self.potential

    @property
    def signed(self) -> float:
        """(fast - slow) / (2 (gamma_fast - gamma_slow)); 0 before the first value."""
        if self.fast is None or self.slow is None:
            return 0.0
        return (self.fast - self.slow) / (2.0 * (self.gamma_fast - self.gamma_slow))

    @property
    def potential(self) -> float:
        """Distance of the two averages, scaled."""
        return abs(self.signed)


class Trackers:
    """One tracker per skill; what it knows goes into the ledger with every transaction."""

    def __init__(self, *, gamma_fast: float, gamma_slow: float) -> None:
        PotentialTracker(gamma_fast=gamma_fast, gamma_slow=gamma_slow)  # refuse a bad pair early
        self._gammas = {"gamma_fast": gamma_fast, "gamma_slow": gamma_slow}
        self._of: dict[str, PotentialTracker] = {}

    def __contains__(self, skill: str) -> bool:
        return skill in self._of

    def of(self, skill: str) -> PotentialTracker:
        """The skill's tracker, new when it has none."""
        if skill not in self._of:
            self._of[skill] = PotentialTracker(**self._gammas)
        return self._of[skill]

    def level(self, skill: str) -> float | None:
        """Slow average; None before the first observation."""
        tracker = self._of.get(skill)
        return None if tracker is None else tracker.slow

    def state(self) -> dict[str, list[float | None]]:
        """JSON-able: skill -> [fast, slow]."""
        return {skill: [t.fast, t.slow] for skill, t in sorted(self._of.items())}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._of.clear()
        for skill, (fast, slow) in state.items():
            tracker = self.of(skill)
            tracker.fast, tracker.slow = fast, slow


@dataclass(frozen=True, slots=True)
class LearningPotential:
    """Distance from the level of the skill."""

    name: str = "learning_potential"
    fewest_offsets: int = 1

    def raw(self, facts: Facts, baselines: Baselines) -> Raw:
        """Missing without returns, or before the skill has a level."""
        mean, level = facts.mean, baselines.level(facts.skill)
        if mean is None:
            return missing("no return of its environment")
        if level is None:
            return missing(f"first designs of {facts.skill!r}: the skill has no level yet")
        return Raw(
            value=abs(mean - level),
            components={"potential": abs(mean - level), "level": level, "signed": mean - level},
        )
