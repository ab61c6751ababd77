"""The reference's treatment of returns, where it differs from ours (`run.compat = "reference"`).

A run in compatibility mode uses `z_score`. The rest is here to be compared with: a run of ours has
no rollout whose gaps are filled by copies, no running average of a game, and the return of an
episode is given to every token as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev

EPS = 1e-8
"""Added to the deviation."""


@dataclass(slots=True)
class MovingMean:
    """Exponential average; the first value is taken as it is."""

    decay: float
    value: float | None = None

    def update(self, new: float) -> float:
        """Take in a value; the average after it."""
        self.value = (
            new if self.value is None else self.decay * self.value + (1.0 - self.decay) * new
        )
        return self.value


@dataclass(frozen=True, slots=True)
class Copied:
    """A sample that may be a copy of another one."""

    sample_id: str
    is_copy: bool = False


def z_score(returns: Sequence[float]) -> list[float]:
    """(r - mean) / (population deviation + 1e-8) of one game's plays; equal ones give 0."""
    mean = fmean(returns)
    deviation = pstdev(returns, mu=mean) + EPS
    return [(value - mean) / deviation for value in returns]


def normalise(
    games: Mapping[str, Sequence[float]], mode: str, averages: dict[str, MovingMean], decay: float
) -> dict[str, list[float]]:
    """Returns of each game as the reference trains them.

    `ema_baseline` takes off the average *before* these returns (0 when new), then moves it once
    with their mean.

    Raises:
        ValueError: unknown mode.
    """
    if mode == "grpo":
        return {game: z_score(returns) for game, returns in games.items()}
    if mode != "ema_baseline":
        raise ValueError(f"normalisation {mode!r}: expected grpo or ema_baseline")
    found = {}
    for game, returns in games.items():
        average = averages.setdefault(game, MovingMean(decay))
        before = average.value or 0.0
        found[game] = [value - before for value in returns]
        average.update(fmean(returns))
    return found


def up_sample(samples: Sequence[Copied], wanted: int) -> list[Copied]:
    """Fill up to `wanted` with copies in turn; nothing stays nothing."""
    if not samples:
        return []
    num_copies = max(0, wanted - len(samples))
    copies = [replace(samples[i % len(samples)], is_copy=True) for i in range(num_copies)]
    return [*samples, *copies]


def discounted_returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """G_t = r_t + gamma G_(t+1), per turn."""
    found: list[float] = []
    following = 0.0
    for reward in reversed(rewards):
        following = reward + gamma * following
        found.append(following)
    return found[::-1]


def episode_return(rewards: Sequence[float], *, terminated: bool) -> float:
    """The last reward, clamped to [-1, 1]; 0 unless the episode terminated."""
    return min(1.0, max(-1.0, rewards[-1])) if terminated and rewards else 0.0


def format_reward(is_present: bool, reward: float, penalty: float) -> float:
    """Reward of a reply that has, or lacks, the required form."""
    return reward if is_present else penalty
