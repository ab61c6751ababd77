"""Which baseline each role has, and how the designer's advantages are scaled (step 8).

`learner.advantage` is the agent's, `designer.reward.baseline` the designer's;
`learner.normalise_std` sets both to z_score. Under `run.compat = "reference"` a key that is not set
has the reference's rule: z-score per game with 1e-8 beside the deviation, centring per skill and
its scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from spade_async.config.schema import Config
from spade_async.designer.rewards.scale import reference_scale
from spade_async.grpo.advantage_reference import z_score
from spade_async.grpo.baseline import Rule, Valued, advantages, has_no_variance
from spade_async.types import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The rules of a run."""

    agent: Rule
    designer: Rule
    is_agent_reference: bool = False
    """Whether the agent's z-score is the reference's."""
    lone_is_zero: bool = False
    """Whether a sample that is alone gets 0 (the reference) or is missing."""
    scale_interval: int | None = None
    """Set: the designer's advantages have the reference's scale."""
    scale_max: float = 50.0
    skips_equal: bool = False
    """Whether groups of equal values are left out of the step."""

    @classmethod
    def of(cls, config: Config) -> Self:
        """The rules that a configuration asks for."""
        is_reference = config.run.compat == "reference"
        reward, learner = config.designer.reward, config.learner
        usual: Rule = "z_score" if learner.normalise_std else "dr_grpo"
        scale = reward.scale or ("reference" if is_reference else "none")
        return cls(
            agent=learner.advantage or ("z_score" if is_reference else usual),
            designer=reward.baseline or ("skill_mean" if is_reference else usual),
            is_agent_reference=is_reference and learner.advantage is None,
            lone_is_zero=is_reference,
            scale_interval=reward.scale_interval if scale == "reference" else None,
            scale_max=reward.scale_max,
            skips_equal=learner.zero_variance == "skip",
        )

    def rule(self, role: Role) -> Rule:
        """Baseline of a role."""
        return self.agent if role is Role.AGENT else self.designer

    def advantages(self, samples: Sequence[Valued], role: Role) -> list[float | None]:
        """Advantage of each sample of one role in a step; None where there is no baseline."""
        if role is Role.AGENT and self.is_agent_reference:
            return _reference(samples)
        found = advantages(samples, self.rule(role))
        if role is Role.DESIGNER and self.lone_is_zero:
            return [0.0 if value is None else value for value in found]
        return found

    def equal_groups(self, samples: Sequence[Valued]) -> set[str]:
        """Groups to be left out because all their values are equal."""
        if not self.skips_equal:
            return set()
        values: dict[str, list[float]] = {}
        for sample in samples:
            values.setdefault(sample.group, []).append(sample.value)
        return {group for group, found in values.items() if has_no_variance(found)}

    def scale(self, num_designs: int, num_episodes: int) -> float:
        """Factor on the designer's advantages."""
        if self.scale_interval is None:
            return 1.0
        return reference_scale(num_designs, num_episodes, self.scale_interval, cap=self.scale_max)


def _reference(samples: Sequence[Valued]) -> list[float | None]:
    members: dict[str, list[int]] = {}
    for index, sample in enumerate(samples):
        members.setdefault(sample.group, []).append(index)
    found: list[float | None] = [None] * len(samples)
    for indices in members.values():
        for index, value in zip(indices, z_score([samples[i].value for i in indices]), strict=True):
            found[index] = value
    return found
