"""Micro learning progress: how much the mean return rose over the offsets that were played.

    slope       = (last offset - first offset) * sum n (o - o~)(m - m~) / sum n (o - o~)^2
    two buckets = mean of the later half of the m - mean of the earlier half

with m the mean return at offset o, n its number of episodes, o~ and m~ the means weighted by n. The
halves are split at floor(number of offsets / 2), so that a middle one belongs to the later half.
Fewer than two offsets have no progress: missing. The sign is kept.

Source: SPADE's code (variant `micro_lp`, and the micro term of its blend), which counts the slope
over the index of the offset; equal when none was left out. Use it when returns rise within a few
learner steps; with 8 episodes per offset its standard error is about a quarter, so it is best in a
blend. It needs `designer.reward.delay` >= 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from spade_async.designer.rewards.facts import Baselines, Facts, Raw, missing

Shape = Literal["slope", "two_bucket"]


def slope(points: Sequence[tuple[float, float, int]]) -> float:
    """Rise of the weighted least-squares line over all of its points.

    Args:
        points: (offset, mean return, number of episodes), at least two different offsets.
    """
    total = sum(n for _, _, n in points)
    mean_o = sum(n * o for o, _, n in points) / total
    mean_m = sum(n * m for _, m, n in points) / total
    covariance = sum(n * (o - mean_o) * (m - mean_m) for o, m, n in points)
    spread = sum(n * (o - mean_o) ** 2 for o, _, n in points)
    return covariance / spread * (points[-1][0] - points[0][0])


def halves(means: Sequence[float]) -> tuple[float, float]:
    """(mean of the earlier half, mean of the later half); at least two means."""
    middle = len(means) // 2
    return fmean(means[:middle]), fmean(means[middle:])


def micro_lp(facts: Facts, shape: Shape) -> float | None:
    """Signed progress in return units; None with fewer than two offsets."""
    points = facts.offset_means
    if len(points) < 2:
        return None
    if shape == "slope":
        return slope(points)
    early, late = halves([m for _, m, _ in points])
    return late - early


@dataclass(frozen=True, slots=True)
class MicroLp:
    """The progress alone."""

    shape: Shape = "slope"
    name: str = "micro_lp"
    fewest_offsets: int = 2

    def raw(self, facts: Facts, baselines: Baselines) -> Raw:
        """Signed progress; missing with fewer than two offsets."""
        del baselines
        found = micro_lp(facts, self.shape)
        if found is None:
            return missing(f"played at {len(facts.offset_means)} offsets: progress needs 2")
        return Raw(value=found, components={"micro_lp": found})
