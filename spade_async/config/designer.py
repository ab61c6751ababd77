"""`designer.*` and `regret.*`: the role that writes environments, and what it is paid by."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from spade_async.config.section import Section, Share


class DesignerConfig(Section):
    """The role that writes environments."""

    group_size: int = Field(8, ge=2, le=1024)
    """Designs that share a prompt and a baseline."""
    groups_per_step: int = Field(2, ge=1, le=1024)
    """Quota (ceiling) of designer groups in one learner step."""
    temperature: float = Field(1.0, gt=0.0, le=4.0)
    """Of sampling; the learner's log-probabilities are at the same."""
    max_new_tokens: int = Field(128, ge=8, le=65_536)
    """Longest design."""
    skills: tuple[str, ...] = Field(("Mathematical Reasoning",), min_length=1, max_length=1024)
    """Rotated over designer groups."""
    hint: Literal["environment", "self", "none"] = "environment"
    """Where the hint comes from: the program's own hint(), the policy, or nowhere."""
    invalid_reward: float = Field(-1.0, ge=-10.0, le=0.0)
    """Bounded pay for a draft that is rejected."""
    novelty_penalty: float = Field(0.2, ge=0.0, le=10.0)
    """Times the share of the same skeleton among the recent designs."""
    novelty_window: int = Field(64, ge=1, le=100_000)
    """How many recent designs the share is taken over."""
    plays_per_skeleton: int = Field(3, ge=1, le=1024)
    """Most environments of one skeleton that are played among the designs of one step."""


class RegretConfig(Section):
    """Classes of regret and the checks of its inputs."""

    mastered_at: Share = 0.9
    """Mean unhinted success (return clamped to [0, 1]) from which an environment is mastered."""
    out_of_reach_at: Share = 0.1
    """Mean hinted success at or below which it is out of reach."""
    leak_seeds: int = Field(4, ge=0, le=64)
    """Seeds on which the hint alone is tried as the answer."""
