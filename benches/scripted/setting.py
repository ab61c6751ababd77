"""The delay-bound setting: who takes how long, and which learner is just as fast. Pure.

Two designer groups of 4 designs and 8 agent groups of 8 episodes per step; each valid design is
played 8 times with and 8 times without the hint; a quarter of the agent's places is for the seed
pool; 64 slots. Lengths are log-normal, sigma 1, a design twice as long as an episode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spade_async.simulate.durations import LogNormal

SLOTS = 64
AGENT_GROUPS, DESIGNER_GROUPS, DESIGNS, EPISODES = 8, 2, 4, 8
"""Per step, per step, per group, per arm of a group."""
VALIDITY = 0.8
POOL_SHARE = 0.25
EPISODE_TOKENS = 200.0
DESIGN_TOKENS = 400.0
SIGMA = 1.0
LIMIT = 16_384 / 3_142
"""Token limit over the mean length: that of the model in docs/simulate.md."""
NO_LIMIT = 60.0
"""Passed by fewer than one request in two million."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaySetting:
    """Where the setting is free."""

    episode_s: float
    """Mean time of an episode before the limit; a design takes twice as long."""
    limit: float = LIMIT
    """Longest request, in means."""
    straggler_s: float = 86_400.0
    """async.straggler_s"""

    @property
    def token_s(self) -> float:
        """Seconds per token."""
        return self.episode_s / EPISODE_TOKENS

    @property
    def generation_s(self) -> float:
        """Mean time of the 64 slots for one step's share of designs and episodes."""
        pool = round(AGENT_GROUPS * POOL_SHARE)
        designed = AGENT_GROUPS - pool
        episodes = AGENT_GROUPS * EPISODES + designed * EPISODES
        # So many designs keep the agents' places filled; the designers' quota allows 8.
        designs = min(designed / VALIDITY, DESIGNER_GROUPS * DESIGNS)
        tokens = episodes * self.mean_tokens(EPISODE_TOKENS)
        tokens += designs * self.mean_tokens(DESIGN_TOKENS)
        return tokens * self.token_s / SLOTS

    def mean_tokens(self, mean: float) -> float:
        """Mean length after the limit."""
        whole = LogNormal.of_mean(mean, SIGMA)
        return LogNormal(whole.median, SIGMA, cap=self.limit * mean).mean

    def values(self, staleness: int, steps: int) -> dict[str, object]:
        """Settings over configs/scripted.toml; the designer's bound is twice the agent's."""
        longest = round(self.limit * DESIGN_TOKENS)
        return {
            "agent.groups_per_step": AGENT_GROUPS,
            "agent.max_new_tokens_per_turn": round(self.limit * EPISODE_TOKENS),
            "agent.pool_share": POOL_SHARE,
            "agent.seeds_per_environment": EPISODES,
            "async.staleness": staleness,
            "async.straggler_s": self.straggler_s,
            "designer.group_size": DESIGNS,
            "designer.groups_per_step": DESIGNER_GROUPS,
            "designer.max_new_tokens": longest,
            "engine.slots": SLOTS,
            "generator.concurrent_tasks": 1024,
            "model.max_context_tokens": 2 * longest,
            "scripted.design_tokens": DESIGN_TOKENS,
            "scripted.episode_tokens": EPISODE_TOKENS,
            "scripted.learner_s": self.generation_s,
            "scripted.sigma": SIGMA,
            "scripted.token_s": self.token_s,
            "scripted.validity": VALIDITY,
            "train.steps": steps,
        }


def warm_up_steps(staleness: int) -> int:
    """Steps until ages are those of the steady state: the designer's bound, and a few."""
    return 2 * staleness + 3


def sets(values: dict[str, object]) -> Iterator[str]:
    """`--set` arguments."""
    for key, value in values.items():
        yield from ("--set", f"{key}={value}")
