"""What a variant is given and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One design when it is paid.

    Example: Facts(skill="logic", plays={0: [0.0, 1.0], 2: [1.0]}, hint_mean=1.0, regret=0.5)
    """

    skill: str
    plays: Mapping[int, Sequence[float]]
    """Offset -> [n] returns of the episodes without hint; offset = learner steps since the first
    play of the design. An offset that was not played is absent."""
    hint_mean: float | None = None
    """Mean return of the hinted episodes; None when there is none."""
    regret: float | None = None
    """Paired regret after the leak factor (`RegretEstimate.paid_regret`); None when missing."""
    timed_out: bool = False
    """Its environment hung in play."""
    repaired: bool = False
    """The program that was played is not the text that the policy wrote."""

    @property
    def returns(self) -> list[float]:
        """All returns, offset by offset."""
        return [value for offset in sorted(self.plays) for value in self.plays[offset]]

    @property
    def mean(self) -> float | None:
        """Mean over all returns of all offsets, the solve rate; None without any."""
        returns = self.returns
        return fmean(returns) if returns else None

    @property
    def offset_means(self) -> list[tuple[int, float, int]]:
        """(offset, mean, number of returns) of each offset that has any, in order."""
        return [(o, fmean(self.plays[o]), len(self.plays[o])) for o in sorted(self.plays)
                if self.plays[o]]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A variant's answer: what the design is worth before it is compared with others."""

    value: float | None
    """None when it cannot be computed."""
    reason: str | None = None
    """Why there is no value; None when there is one."""
    components: Mapping[str, float] = field(default_factory=dict)
    """Parts and inputs by name, for metrics; what was not measured is absent."""
    is_masked: bool = False
    """The reference's rule: a negative blend leaves the batch before anything is compared."""


class Baselines(Protocol):
    """Per-skill level of returns, read by learning potential."""

    def level(self, skill: str) -> float | None:
        """Slow average of the skill; None before its first observation."""


class Variant(Protocol):
    """One way to pay a design."""

    @property
    def name(self) -> str:
        """Its key in `designer.reward.variant`."""

    @property
    def fewest_offsets(self) -> int:
        """Offsets that have to be played before it can pay: 2 needs a delay of at least 2."""

    def raw(self, facts: Facts, baselines: Baselines) -> Raw:
        """Value of one design that was played. Never raises on what untrusted code returned."""


def missing(reason: str, components: Mapping[str, float] | None = None) -> Raw:
    """No value, and why."""
    return Raw(value=None, reason=reason, components=components or {})
