"""`designer.reward.*`: what a design is paid, and when."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from spade_async.config.section import Section, Share

Baseline = Literal["dr_grpo", "z_score", "leave_one_out", "skill_mean"]
"""What a sample is compared with; see docs/rewards.md."""


class RewardConfig(Section):
    """What a design is paid, and when; every variant is on docs/rewards.md."""

    variant: Literal["regret", "blend", "learning_potential", "micro_lp", "solve_rate"] = "regret"
    """What a design that was played is paid by."""
    delay: int = Field(0, ge=0, le=1000)
    """Learner steps that an environment stays in play before its design is paid, counted from its
    first play; 0 pays as soon as its episodes are in. Nothing waits for it. Needs
    async.designer_bound >= delay + 1, and room for the steps that designing takes."""
    weight_regret: float = Field(0.4, ge=0.0, le=100.0)
    """Blend: weight of regret / regret_norm."""
    weight_micro_lp: float = Field(0.0, ge=0.0, le=100.0)
    """Blend: weight of progress / micro_lp_norm; above 0 needs delay >= 2."""
    weight_plateau: float = Field(0.6, ge=0.0, le=100.0)
    """Blend: weight of the plateau."""
    weight_frontier: float = Field(0.0, ge=0.0, le=100.0)
    """Blend: weight of the frontier penalty / frontier_norm."""
    regret_norm: float = Field(0.15, ge=0.001, le=10.0)
    """Blend: regret that counts as 1."""
    micro_lp_norm: float = Field(0.10, ge=0.001, le=10.0)
    """Blend: progress that counts as 1."""
    frontier_norm: float = Field(0.08, ge=0.001, le=10.0)
    """Blend: frontier penalty that counts as 1."""
    regret_range: Literal["bounded", "floor", "free"] = "bounded"
    """Blend: regret / regret_norm is held in [-1, 1], in [0, 1], or not at all."""
    micro_lp: Literal["slope", "two_bucket"] = "slope"
    """How progress is read off the mean returns of the offsets."""
    plateau_low: Share = 0.4
    """Lower end of the band of mean returns that earns the whole plateau."""
    plateau_high: Share = 0.6
    """Upper end of it."""
    plateau_ramp: float = Field(0.25, ge=0.001, le=10.0)
    """Distance from the band at which the plateau is 0."""
    gamma_fast: float = Field(0.98, gt=0.0, le=1.0)
    """Learning potential: weight of the newest mean in the fast average of a skill."""
    gamma_slow: float = Field(0.85, gt=0.0, le=1.0)
    """And in the slow one, the level of the skill; smaller than gamma_fast."""
    variance_bonus: float = Field(0.0, ge=0.0, le=100.0)
    """Added to any variant: this times the variance bonus of the returns."""
    timed_out: float = Field(-1.0, ge=-10.0, le=0.0)
    """Bounded pay for a draft that timed out, or an environment that mostly does so in play."""
    repaired: float = Field(-0.5, ge=-10.0, le=0.0)
    """Bounded pay for a draft that was invalid and whose program a later repair turn made."""
    repair_penalty: float = Field(0.1, ge=0.0, le=10.0)
    """Taken off the pay of a design whose text was repaired (stray fences, doubled braces)."""
    baseline: Baseline | None = None
    """What a design's pay is compared with: "dr_grpo" its group's mean (when not set), "z_score"
    also divided by the group's deviation, "leave_one_out" the mean of the others of its group,
    "skill_mean" the mean of its skill in the step."""
    scale: Literal["none", "reference"] | None = None
    """Factor on the designer's advantages: none (when not set; learner.designer_weight is the knob)
    or the reference's min(episodes / designs x scale_interval, scale_max)."""
    scale_interval: int = Field(4, ge=1, le=1000)
    """The reference's learner steps between two sets of designs."""
    scale_max: float = Field(50.0, gt=0.0, le=1e6)
    """Cap of the reference's factor."""


def reward_problem(
    reward: RewardConfig, designer_bound: int, compat: Literal["off", "reference"]
) -> str | None:
    """What is wrong with the section beside the rest of a configuration, or None."""
    if reward.delay and designer_bound < reward.delay + 1:
        return (
            f"designer.reward.delay={reward.delay} needs async.designer_bound >= "
            f"{reward.delay + 1}, it is {designer_bound}: a design paid after {reward.delay} steps "
            "is that old at least when it is trained; raise the bound (or async.staleness) or "
            "lower the delay"
        )
    needs, why = _least_delay(reward, compat)
    if reward.delay < needs:
        return (
            f"designer.reward.delay={reward.delay} with {why}: progress is read off episodes of "
            f"later learner steps; set designer.reward.delay >= {needs}"
        )
    if reward.gamma_slow >= reward.gamma_fast:
        return (
            f"designer.reward.gamma_slow={reward.gamma_slow} must be below "
            f"designer.reward.gamma_fast={reward.gamma_fast}"
        )
    if reward.plateau_low > reward.plateau_high:
        return (
            f"designer.reward.plateau_low={reward.plateau_low} is above "
            f"designer.reward.plateau_high={reward.plateau_high}"
        )
    return None


def _least_delay(reward: RewardConfig, compat: str) -> tuple[int, str]:
    """(least delay, the keys that need it)."""
    least = 2 if compat == "off" else 1
    if reward.variant == "micro_lp":
        return least, 'designer.reward.variant="micro_lp"'
    if reward.variant == "blend" and (reward.weight_micro_lp or compat == "reference"):
        return least, (
            'designer.reward.variant="blend" and designer.reward.weight_micro_lp='
            f"{reward.weight_micro_lp}"
        )
    return 0, ""


def baseline_clash(
    normalise_std: bool, agent: Baseline | None, designer: Baseline | None
) -> str | None:
    """What contradicts the shorthand `learner.normalise_std`, or None."""
    if not normalise_std:
        return None
    for key, value in (("learner.advantage", agent), ("designer.reward.baseline", designer)):
        if value not in (None, "z_score"):
            return (
                f'learner.normalise_std=true sets {key}="z_score", but {key}="{value}" is set as '
                "well: leave one of the two keys out"
            )
    return None
