"""Blend: regret, progress, the plateau and the frontier penalty, each in its own unit.

    raw = a clip(regret / 0.15) + b micro_lp / 0.10 + c plateau(w) - d frontier(w) / 0.08

w is the mean over all returns of all offsets, the divisors are `designer.reward.*_norm`. A part
whose weight is 0 is not needed; one that is needed and missing makes the pay missing.

Weights. The recipe of the paper's main table is a = .4 (floored at 0), c = .6, b = d = 0, and so
are our defaults, but for the clip: the term stays in [-1, 1] instead of [0, 1] (`regret_range =
"bounded"`). A hint that harms then costs as much as one that helps earns, one lucky pair of
extremes cannot outweigh the plateau, and the pay stays in [-.4, 1]. Progress has weight 0 by
default because at 8 episodes per offset its standard error (about .24 over 4 offsets) is twice its
divisor; raise it with more episodes. The defaults of the reference's code, .5 / .5 / 0 / 0, are not
the ones its recipes run with.

Source: SPADE, variant `blend`. Use it when regret alone is too sparse: the plateau pays for a
middle difficulty at once, regret then says which of those can be learned. Known limit: the
plateau's mean is over policies that improve, so a design is paid for where the agent was on
average, not at the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spade_async.designer.rewards.facts import Baselines, Facts, Raw, missing
from spade_async.designer.rewards.frontier import frontier
from spade_async.designer.rewards.micro_lp import Shape, micro_lp
from spade_async.designer.rewards.plateau import USUAL, Plateau

Range = Literal["bounded", "floor", "free"]


def clip(value: float, regret_range: Range) -> float:
    """`value` within [-1, 1] ("bounded"), [0, 1] ("floor"), or as it is ("free")."""
    if regret_range == "free":
        return value
    return min(1.0, max(-1.0 if regret_range == "bounded" else 0.0, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of the blend, and what each part is divided by."""

    regret: float = 0.4
    micro_lp: float = 0.0
    plateau: float = 0.6
    frontier: float = 0.0
    regret_norm: float = 0.15
    micro_lp_norm: float = 0.10
    frontier_norm: float = 0.08

    def terms(
        self,
        *,
        regret: float,
        progress: float,
        plateau: float,
        penalty: float,
        regret_range: Range,
    ) -> dict[str, float]:
        """Signed terms by name; their sum is the blend. A part of weight 0 may be any number."""
        return {
            "regret_term": self.regret * clip(regret / self.regret_norm, regret_range),
            "micro_lp_term": self.micro_lp * (progress / self.micro_lp_norm),
            "plateau_term": self.plateau * plateau,
            "frontier_term": -self.frontier * (penalty / self.frontier_norm),
        }


@dataclass(frozen=True, slots=True)
class Blend:
    """The weighted sum."""

    weights: Weights = Weights()
    plateau: Plateau = USUAL
    regret_range: Range = "bounded"
    shape: Shape = "slope"
    name: str = "blend"

    @property
    def fewest_offsets(self) -> int:
        """2 when progress has a weight."""
        return 2 if self.weights.micro_lp else 1

    def raw(self, facts: Facts, baselines: Baselines) -> Raw:
        """Missing when a part that has a weight is missing."""
        del baselines
        mean, progress = facts.mean, micro_lp(facts, self.shape)
        if mean is None:
            return missing("no return of its environment")
        if facts.regret is None and self.weights.regret:
            return missing("no complete pair")
        if progress is None and self.weights.micro_lp:
            return missing(f"played at {len(facts.offset_means)} offsets: progress needs 2")
        parts = {"solve_rate": mean, "plateau": self.plateau(mean), "frontier": frontier(mean)}
        terms = self.weights.terms(
            regret=facts.regret or 0.0,
            progress=progress or 0.0,
            plateau=parts["plateau"],
            penalty=parts["frontier"],
            regret_range=self.regret_range,
        )
        if facts.regret is not None:
            parts["regret"] = facts.regret
        if progress is not None:
            parts["micro_lp"] = progress
        return Raw(value=sum(terms.values()), components=parts | terms)
