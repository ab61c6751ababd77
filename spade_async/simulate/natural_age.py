"""Little's law for the age of samples: will a bound throttle a run, or is it free?

In the steady state a group waits, in learner steps, as long as there are groups in flight or ready
per group that a step takes. With slots for C sequences, groups of G and B groups per step

    mean age = C / (G * B) * E[longest of G] / E[one] + ready / B

because a group holds its place until its slowest member is in. That is the age a run would have
without a bound: its natural age. From about twice that a bound costs nothing; below it the bound,
not the slots, decides how much is in flight.

Two roles. An agent group is a play: its trained episodes are one arm, and the slots are shared with
the hinted arm and with designs in proportion to the work of each. A designer group lives through
two stages: its designs, then all their plays; it ends when the slowest design's slowest episode is
in.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from spade_async.simulate.durations import Durations, largest_of, tail_factor

FREE_FROM = 2.0
"""A bound of this many natural ages is free (measured in docs/simulate.md)."""


class Verdict(enum.StrEnum):
    """What a bound does to a run."""

    FREE = "free"
    """At least twice the natural age: raising it changes nothing."""
    TIGHT = "tight"
    """Above the natural age, below twice that: it cuts into the tail."""
    THROTTLES = "throttles"
    """Below the natural age: it decides the rate."""


@dataclass(frozen=True, slots=True)
class AgeCheck:
    """A bound against the natural age of its role."""

    role: str
    key: str
    """Configuration key of the bound."""
    bound: int
    natural_age: float
    """Learner steps."""

    @property
    def verdict(self) -> Verdict:
        """What the bound does."""
        if self.bound >= FREE_FROM * self.natural_age:
            return Verdict.FREE
        return Verdict.TIGHT if self.bound > self.natural_age else Verdict.THROTTLES


def natural_age(
    *, slots: float, group_size: int, quota: int, tail: float, ready: float = 0.0
) -> float:
    """Mean age in learner steps that slots and group size alone give.

    Args:
        slots: sequences of this role in flight at once, over all generators.
        group_size: sequences of a group.
        quota: groups that a step takes.
        tail: E[longest of the group] / E[one sequence], see `tail_factor`.
        ready: groups that wait complete, on average.

    Example: 256 slots, groups of 8, 32 per step, log-normal sigma 1 capped at 16k (tail 2.85) give
    2.85 learner steps.
    """
    return slots / (group_size * quota) * tail + ready / quota


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleLoad:
    """Both roles' work per learner step, and the slots that do it."""

    slots: int
    """Over all generators."""
    agent_quota: int
    designer_quota: int
    group_size: int
    """Designs per designer group."""
    episodes: int
    """Trained episodes of an agent group; a designed one has as many hinted ones on top."""
    pool_share: float
    validity: float
    """Share of designs that are played."""
    design_s: Durations
    episode_s: Durations


def role_ages(load: RoleLoad) -> tuple[float, float]:
    """Natural age of (agent, designer) groups with every slot always taken.

    A step's work in slot seconds is D designs and their plays, and pool plays for the rest of the
    agents' quota. With C slots always taken a step's worth of work needs work / C seconds, which is
    the step time of a generator-bound run; a group's life over that is its age.
    """
    designs = load.designer_quota * load.group_size
    pool = min(round(load.agent_quota * load.pool_share), load.agent_quota)
    designed = min(designs * load.validity, float(load.agent_quota - pool))
    plays = load.agent_quota - designed
    episode_s = load.episodes * load.episode_s.mean
    work_s = designs * load.design_s.mean + (2.0 * designed + plays) * episode_s
    step_s = work_s / load.slots
    play_s = load.episode_s.mean * tail_factor(load.episode_s, load.episodes)
    both_arms_s = largest_of(load.episode_s, 2 * load.episodes * load.group_size)
    design_s = largest_of(load.design_s, load.group_size)
    return play_s / step_s, (design_s + both_arms_s) / step_s


def check_bounds(load: RoleLoad, agent_bound: int, designer_bound: int) -> list[AgeCheck]:
    """Both bounds against the natural ages, agent first."""
    agent_age, designer_age = role_ages(load)
    return [
        AgeCheck("agent", "async.agent_bound", agent_bound, agent_age),
        AgeCheck("designer", "async.designer_bound", designer_bound, designer_age),
    ]
