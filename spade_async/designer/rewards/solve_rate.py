"""Solve rate: the plateau alone, without any use of the hint.

    raw = plateau(mean of all returns)

Source: SPADE's solve-rate ablation (a blend with plateau weight 1). Use it as the baseline that
regret has to beat, or where an environment has no hint; it cannot tell "hard" from "impossible by
chance".
"""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.designer.rewards.facts import Baselines, Facts, Raw, missing
from spade_async.designer.rewards.plateau import USUAL, Plateau


@dataclass(frozen=True, slots=True)
class SolveRate:
    """The plateau of the mean return."""

    plateau: Plateau = USUAL
    name: str = "solve_rate"
    fewest_offsets: int = 1

    def raw(self, facts: Facts, baselines: Baselines) -> Raw:
        """Missing without returns."""
        del baselines
        mean = facts.mean
        if mean is None:
            return missing("no return of its environment")
        value = self.plateau(mean)
        return Raw(value=value, components={"plateau": value, "solve_rate": mean})
