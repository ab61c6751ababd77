"""The catalog of the value head (learner.critic)."""

from __future__ import annotations

from spade_async.telemetry.metric import Metric
from spade_async.telemetry.metric import per_step as _m

CRITIC: dict[str, Metric] = {
    "critic/loss": _m("loss", "Value loss over the step, before the head learned from it."),
    "critic/explained_variance": _m(
        "share", "1 - Var(target - value) / Var(target): 0 knows nothing, below 0 misleads."
    ),
    "critic/value_mean": _m("return", "Mean value over the step's tokens, in scaled returns."),
    "critic/value_clip_share": _m(
        "share", "Tokens whose value moved further than learner.critic.clip_value in the step."
    ),
    "critic/return_mean/<role>": _m("return", "Running mean of the role's returns."),
    "critic/return_deviation/<role>": _m("return", "Running deviation of the role's returns."),
    "critic/nonfinite": _m("steps", "1 when the head was put back because it was not finite."),
}
"""Only with learner.critic.enabled."""
