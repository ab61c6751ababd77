"""`learner.critic.*`: a value head with generalised advantages, PPO-Max's way; off by default."""

from __future__ import annotations

from pydantic import Field

from spade_async.config.section import Section


class CriticConfig(Section):
    """A value head of the learner; see docs/correction.md. All other keys need `enabled`."""

    enabled: bool = False
    """Advantages come from a value head and GAE instead of the group."""
    gamma: float = Field(1.0, gt=0.0, le=1.0)
    """Discount per trained token."""
    gae_lambda: float = Field(0.95, ge=0.0, le=1.0)
    """1 is the return minus the value (no bias, most variance), 0 the one-step difference."""
    lr: float = Field(1e-2, gt=0.0, le=1.0)
    """Learning rate of the head (Adam)."""
    passes: int = Field(4, ge=1, le=1000)
    """Steps of the head per batch, each over all of it."""
    clip_value: float = Field(0.2, ge=0.0, le=1e6)
    """The value loss holds new values this near those before the step; 0 is no clip."""
    warmup_steps: int = Field(5, ge=0, le=1_000_000)
    """First learner steps in which the head learns and advantages are still the group's."""
    normalise_returns: bool = True
    """Less the running mean of the role's returns, over their running deviation."""
    clip_return: float = Field(5.0, ge=0.0, le=1e6)
    """Returns are cut to this size, after normalisation; 0 is no cut."""
    normalise_advantages: bool = True
    """Less their mean over the role's tokens of the step, over their deviation."""


def critic_problem(critic: CriticConfig, learner_kind: str, normalise_std: bool) -> str | None:
    """What is wrong with the section, in one sentence with the next move; None when nothing is.

    Args:
        critic: section learner.critic.
        learner_kind: learner.kind.
        normalise_std: learner.normalise_std.
    """
    if not critic.enabled:
        for name, value in critic:
            if value != getattr(CriticConfig(), name):
                return (
                    f"learner.critic.{name}={value} has no meaning with learner.critic.enabled="
                    "false: set learner.critic.enabled=true, or remove it"
                )
        return None
    if learner_kind == "scripted":
        return (
            'learner.critic.enabled=true and learner.kind="scripted": a scripted learner has no '
            "hidden states to value; leave one of the two out"
        )
    if normalise_std and critic.normalise_advantages and critic.warmup_steps == 0:
        return (
            "learner.normalise_std=true divides the group's advantages, which learner.critic."
            "enabled=true with learner.critic.warmup_steps=0 never uses: remove normalise_std, or "
            "set warmup_steps"
        )
    return None
