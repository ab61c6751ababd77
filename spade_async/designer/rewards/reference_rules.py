"""The reference variants (`run.compat = "reference"`), and what they do where a number is missing.

It fills gaps with 0: a hint that was not played, an environment without returns, a skill without a
level. Regret is unpaired: the hinted mean less the mean at the first offset that is present (in the
blend), or less the mean of all returns (in `regret`, floored at 0). docs/compat.md lists all of it.
Source: SPADE's public code as described by its behaviour; the golden vectors are in
tests/unit/designer/rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from spade_async.designer.rewards.blend import Range, Weights
from spade_async.designer.rewards.facts import Baselines, Facts, Raw
from spade_async.designer.rewards.frontier import frontier
from spade_async.designer.rewards.micro_lp import Shape, halves, slope
from spade_async.designer.rewards.plateau import USUAL, Plateau
from spade_async.designer.rewards.variance import variance_bonus

OF_THE_CODE = Weights(regret=0.5, micro_lp=0.5, plateau=0.0, frontier=0.0)
"""Defaults of its code, which its recipes do not use."""
TIMED_OUT = -0.5
"""Raw value of a design whose environment hung, in `regret` only: the blend does not look."""
REPAIRED = 0.0
"""Raw value of a design whose first text was invalid."""


def first_mean(facts: Facts) -> float:
    """Mean at the first offset present; 0 when that one is empty, or none is present."""
    if not facts.plays:
        return 0.0
    values = facts.plays[min(facts.plays)]
    return fmean(values) if values else 0.0


def matched_regret(facts: Facts) -> float:
    """Hinted mean less the mean at the first offset; a missing side counts as 0."""
    return (facts.hint_mean or 0.0) - first_mean(facts)


def progress(facts: Facts, shape: Shape) -> float:
    """Signed progress over the index of the offset; 0 with fewer than two offsets."""
    points = facts.offset_means
    if len(points) < 2:
        return 0.0
    if shape == "slope":
        return slope([(index, m, n) for index, (_, m, n) in enumerate(points)])
    early, late = halves([m for _, m, _ in points])
    return late - early


@dataclass(frozen=True, slots=True)
class ReferenceRegret:
    """max(0, hinted mean - mean of all returns); -0.5 when it hung; 0 when it was repaired."""

    name: str = "regret"
    fewest_offsets: int = 0

    def raw(self, facts: Facts, baselines: Baselines) -> Raw:
        """Never missing."""
        del baselines
        regret = (facts.hint_mean or 0.0) - (facts.mean or 0.0)
        value = max(0.0, regret)
        if facts.timed_out:
            value = TIMED_OUT
        elif facts.repaired:
            value = REPAIRED
        return Raw(value=value, components={"regret": regret})


@dataclass(frozen=True, slots=True)
class ReferenceLearningPotential:
    """|mean of all returns - level|, optionally with the variance bonus; 0 without returns."""

    variance: bool = False
    name: str = "learning_potential"
    fewest_offsets: int = 0

    def raw(self, facts: Facts, baselines: Baselines) -> Raw:
        """Never missing; an unknown level is 0."""
        mean, level = facts.mean, baselines.level(facts.skill) or 0.0
        if mean is None or facts.repaired:
            return Raw(value=0.0)
        bonus = (variance_bonus(facts.returns) or 0.0) if self.variance else 0.0
        return Raw(
            value=abs(mean - level) + bonus,
            components={"potential": abs(mean - level), "level": level, "variance_bonus": bonus},
        )


@dataclass(frozen=True, slots=True)
class ReferenceMicroLp:
    """max(0, later half - earlier half); 0 with fewer than two offsets."""

    name: str = "micro_lp"
    fewest_offsets: int = 0

    def raw(self, facts: Facts, baselines: Baselines) -> Raw:
        """Never missing."""
        del baselines
        found = progress(facts, "two_bucket")
        return Raw(value=max(0.0, found), components={"micro_lp": found})


@dataclass(frozen=True, slots=True)
class ReferenceBlend:
    """The weighted sum with zeros in the gaps; masked when it is below 0 (strictly)."""

    weights: Weights = OF_THE_CODE
    plateau: Plateau = USUAL
    regret_range: Range = "free"
    shape: Shape = "slope"
    signed: bool = True
    name: str = "blend"
    fewest_offsets: int = 0

    def raw(self, facts: Facts, baselines: Baselines) -> Raw:
        """Never missing."""
        del baselines
        mean, found = facts.mean or 0.0, progress(facts, self.shape)
        parts = {
            "regret": matched_regret(facts),
            "micro_lp": found if self.signed else max(0.0, found),
            "plateau": self.plateau(mean),
            "frontier": frontier(mean),
            "solve_rate": mean,
        }
        terms = self.weights.terms(
            regret=parts["regret"],
            progress=parts["micro_lp"],
            plateau=parts["plateau"],
            penalty=parts["frontier"],
            regret_range=self.regret_range,
        )
        value = sum(terms.values())
        return Raw(value=value, components=parts | terms, is_masked=value < 0.0)
