"""Which variant a configuration names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from spade_async.config.reward import RewardConfig
from spade_async.designer.rewards.blend import Blend, Weights
from spade_async.designer.rewards.facts import Variant
from spade_async.designer.rewards.learning_potential import LearningPotential
from spade_async.designer.rewards.micro_lp import MicroLp
from spade_async.designer.rewards.plateau import Plateau
from spade_async.designer.rewards.reference_rules import (
    ReferenceBlend,
    ReferenceLearningPotential,
    ReferenceMicroLp,
    ReferenceRegret,
)
from spade_async.designer.rewards.regret import Regret
from spade_async.designer.rewards.solve_rate import SolveRate

Make = Callable[[RewardConfig], Variant]


def _plateau(config: RewardConfig) -> Plateau:
    return Plateau(config.plateau_low, config.plateau_high, config.plateau_ramp)


def _weights(config: RewardConfig) -> Weights:
    return Weights(
        regret=config.weight_regret,
        micro_lp=config.weight_micro_lp,
        plateau=config.weight_plateau,
        frontier=config.weight_frontier,
        regret_norm=config.regret_norm,
        micro_lp_norm=config.micro_lp_norm,
        frontier_norm=config.frontier_norm,
    )


def _blend(config: RewardConfig) -> Variant:
    return Blend(_weights(config), _plateau(config), config.regret_range, config.micro_lp)


def _reference_blend(config: RewardConfig) -> Variant:
    return ReferenceBlend(_weights(config), _plateau(config), config.regret_range, config.micro_lp)


def _reference_solve_rate(config: RewardConfig) -> Variant:
    only = Weights(regret=0.0, micro_lp=0.0, plateau=1.0, frontier=0.0)
    return ReferenceBlend(only, _plateau(config), name="solve_rate")


VARIANTS: Mapping[str, Make] = {
    "regret": lambda _: Regret(),
    "blend": _blend,
    "learning_potential": lambda _: LearningPotential(),
    "micro_lp": lambda config: MicroLp(config.micro_lp),
    "solve_rate": lambda config: SolveRate(_plateau(config)),
}
"""By `designer.reward.variant`."""

REFERENCE: Mapping[str, Make] = {
    "regret": lambda _: ReferenceRegret(),
    "blend": _reference_blend,
    "learning_potential": lambda config: ReferenceLearningPotential(config.variance_bonus > 0.0),
    "micro_lp": lambda _: ReferenceMicroLp(),
    "solve_rate": _reference_solve_rate,
}
"""The same under `run.compat = "reference"`."""


def make(config: RewardConfig, compat: Literal["off", "reference"] = "off") -> Variant:
    """The variant of a run."""
    return (VARIANTS if compat == "off" else REFERENCE)[config.variant](config)
