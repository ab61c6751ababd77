"""`designer.*`: the role that writes environments."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from spade_async.config.reward import RewardConfig
from spade_async.config.section import Section


class DesignerConfig(Section):
    """The role that writes environments."""

    group_size: int = Field(8, ge=2, le=1024)
    """Designs that share a prompt and a baseline."""
    groups_per_step: int = Field(2, ge=1, le=1024)
    """Quota (ceiling) of designer groups in one learner step."""
    temperature: float = Field(1.0, gt=0.0, le=4.0)
    """Of sampling; the learner's log-probabilities are at the same."""
    thinking: bool | None = None
    """Sets the chat template's thinking switch (Qwen3 class); not set: as the template has it. A
    template without the switch is refused. Thoughts need room in the token limits."""
    max_new_tokens: int = Field(128, ge=8, le=65_536)
    """Longest design."""
    skills: tuple[str, ...] = Field(("Mathematical Reasoning",), min_length=1, max_length=1024)
    """Asked for in turn by designer groups. The games domain has nine (docs/prompts.md); an
    underscore stands for a space."""
    skills_per_window: int = Field(0, ge=0, le=1024)
    """How many of them, in a row, a window asks for; 0 asks for all."""
    skill_window: int = Field(0, ge=0, le=1_000_000)
    """Designer groups of one window; the next window goes on with the skills that follow. 0: there
    is one window."""
    prompt: Literal["auto", "single_turn", "multi_turn", "corpus"] = "auto"
    """Which prompt of the games domain: a puzzle of one answer, a game of decisions, or one that a
    document is the ground of. "auto" takes "corpus" with a document, "multi_turn" without,
    and "single_turn" with agent.max_turns=1."""
    num_ideas: int = Field(3, ge=0, le=16)
    """Concepts of the skill that the prompt offers, drawn anew for each group."""
    hint: Literal["environment", "self", "none"] = "environment"
    """Where the hint comes from: the program's own hint(), the policy, or nowhere."""
    repair_turns: int = Field(0, ge=0, le=10)
    """How often the fault of a rejected program is told to the policy, which then writes it anew.
    Its first reply is what trains; the sample is marked `repaired`."""
    validator: Literal["off", "self"] = "off"
    """"self": the policy reads each valid program and says whether it is sound; "no" rejects it."""
    no_verdict: Literal["accept", "reject"] = "accept"
    """What a validator's reply without a clear yes or no means for the program. Either way it is
    recorded as no verdict and counted in `designer/no_verdict`."""
    self_judge: Literal["off", "probe", "policy"] = "off"
    """Whether the policy judges a valid program by one play of it: the play of the validation
    ("probe"), or an unhinted one of its own that is not trained ("policy")."""
    judge_penalty: float = Field(0.5, ge=0.0, le=10.0)
    """Taken off the pay of a program that the judge found inconsistent."""
    verdict_tokens: int = Field(1024, ge=8, le=65_536)
    """Longest reply of validator and judge."""
    verdict_temperature: float = Field(0.3, ge=0.0, le=4.0)
    """Of their sampling; they are never trained."""
    invalid_reward: float = Field(-1.0, ge=-10.0, le=0.0)
    """Bounded pay for a draft that is rejected."""
    novelty_penalty: float = Field(0.2, ge=0.0, le=10.0)
    """Times the share of the same skeleton among the recent designs; 0 takes nothing off."""
    novelty_window: int = Field(64, ge=1, le=100_000)
    """How many recent designs the share is taken over."""
    plays_per_skeleton: int = Field(3, ge=0, le=1024)
    """Most environments of one skeleton that are played among the designs of one step; 0 is no
    limit."""
    reward: RewardConfig = RewardConfig()
    """What a design is paid, and when."""
