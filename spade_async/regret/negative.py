"""Whether hints mislead: a look at the running regret of each skill, and an alarm to be trusted.

Hints are meant to help. Small models may be misled by them (the paper reports long stretches of
negative regret at 4B and 8B), and then regret pays the designer for nothing that can be learnt.

**Test.** Per skill the regrets r of its environments, in the order they are measured, feed a
detector: for each bet b of a fixed grid, ``M_b <- max(M_b, 1) * (1 - b r)``, and M is their mean.
While no regret is negative on average (given the past), M - n is a supermartingale, so between two
false alarms, M reaching A, there are at least A environments on average, whatever the distribution
and however long the regret was positive before. `max` forgets that past: a change is seen at once.

Source: Shin, Ramdas, Rinaldo, "E-detectors: a nonparametric framework for sequential change
detection" (2023). Simulated in tests/unit/regret/test_negative.py.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

WINDOW = 64
"""Newest environments of a skill that its running estimate is over."""
_GRID = tuple((i + 0.5) / 8 for i in range(8))
"""Shares of the largest bet."""


@dataclass(frozen=True, slots=True)
class Running:
    """What a skill's regret is at present."""

    mean: float
    standard_error: float | None
    """None for a single environment."""
    num: int
    """Environments it is over, at most `WINDOW`."""
    evidence: float
    """log M / log A: 0 or less when nothing speaks against hints, 1 is the alarm."""


@dataclass(frozen=True, slots=True)
class Change:
    """Hints of a skill were turned off, or are tried again."""

    skill: str
    hints: bool
    running: Running | None
    """At the alarm; None when hints are tried again."""


@dataclass(slots=True)
class _Skill:
    regrets: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    capital: list[float] = field(default_factory=lambda: [0.0] * len(_GRID))
    off_until: int | None = None
    """Learner ordinal at which hints are tried again; None while they are used."""


class NegativeRegret:
    """The detector of every skill; what it knows is JSON, for the ledger."""

    def __init__(self, *, alarm_every: float, recheck_steps: int, span: float) -> None:
        """Nothing measured yet.

        Args:
            alarm_every: A, environments of a skill between two false alarms, on average at least.
            recheck_steps: learner steps after which hints are tried again.
            span: largest regret there can be: 1 less the lowest return.
        """
        self._threshold = alarm_every
        self._recheck_steps = recheck_steps
        self._span = span
        self._skills: dict[str, _Skill] = {}

    def measured(self, skill: str, regret: float, ordinal: int) -> Change | None:
        """Take in the regret of one environment; a change if that raises the alarm.

        After an alarm the detector starts anew, whatever is done about it. What was still out when
        hints were turned off counts for nothing.
        """
        known = self._skills.setdefault(skill, _Skill())
        if known.off_until is not None:
            return None
        known.regrets.append(regret)
        seen = min(regret, self._span)
        known.capital = [
            max(capital, 1.0) * (1.0 - bet / self._span * seen)
            for capital, bet in zip(known.capital, _GRID, strict=True)
        ]
        if fmean(known.capital) < self._threshold:
            return None
        change = Change(skill, hints=False, running=self._running(known))
        known.capital = [0.0] * len(_GRID)
        known.off_until = ordinal + self._recheck_steps
        return change

    def resume_hints(self, skill: str, ordinal: int) -> Change | None:
        """Try the hints of a skill again once that is due, or at once (`ordinal` = infinity)."""
        known = self._skills.get(skill)
        if known is None or known.off_until is None or ordinal < known.off_until:
            return None
        known.off_until = None
        known.regrets.clear()
        return Change(skill, hints=True, running=None)

    def ignore(self, skill: str) -> None:
        """After an alarm that nothing is done about: go on measuring."""
        known = self._skills[skill]
        known.off_until = None
        known.regrets.clear()

    def uses_hints(self, skill: str) -> bool:
        """Whether environments of the skill are played with hints."""
        known = self._skills.get(skill)
        return known is None or known.off_until is None

    def running(self) -> dict[str, Running]:
        """By skill, of those that were measured since hints were last turned on."""
        return {
            skill: self._running(known)
            for skill, known in sorted(self._skills.items())
            if known.regrets
        }

    def _running(self, known: _Skill) -> Running:
        num = len(known.regrets)
        error = stdev(known.regrets) / math.sqrt(num) if num > 1 else None
        most = fmean(known.capital)
        evidence = math.log(most) / math.log(self._threshold) if most > 0.0 else 0.0
        return Running(fmean(known.regrets), error, num, max(0.0, evidence))

    def skills(self) -> list[str]:
        """Every skill that was measured."""
        return sorted(self._skills)

    def state(self) -> dict[str, Any]:
        """For the ledger."""
        return {
            skill: {
                "regrets": list(known.regrets),
                "capital": known.capital,
                "off_until": known.off_until,
            }
            for skill, known in sorted(self._skills.items())
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        self._skills = {
            skill: _Skill(
                deque(row["regrets"], maxlen=WINDOW), list(row["capital"]), row["off_until"]
            )
            for skill, row in state.items()
        }
