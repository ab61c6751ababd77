"""The catalog of what designs are paid (`coordinator/pay_window.py`)."""

from __future__ import annotations

from spade_async.telemetry.metric import Metric
from spade_async.telemetry.metric import per_step as _m

REWARD: dict[str, Metric] = {
    "reward/value": _m(
        "reward",
        "Mean value of a played design by its variant, before penalties (docs/rewards.md).",
    ),
    "reward/component/<component>": _m(
        "reward", "Mean of one part of that value, or of its inputs."
    ),
    "reward/skill/<skill>/paid": _m("reward", "Mean pay of the designs of a skill, played or not."),
    "reward/skill/<skill>/<component>": _m(
        "reward",
        "The same by skill: value, parts and inputs; mu_fast, mu_slow and learning_potential are "
        "the skill's averages of returns and their distance.",
    ),
    "reward/offsets": _m(
        "offsets", "Mean number of offsets a design was played at when it was paid."
    ),
    "reward/episodes": _m("episodes", "Mean number of its unhinted returns that were paid for."),
    "reward/masked_share": _m(
        "share", "Designs left out because their blend is below 0 (the reference's rule only)."
    ),
    "reward/held": _m(
        "designs", "Played designs that wait for their pay (designer.reward.delay above 0 only)."
    ),
    "reward/held_steps": _m(
        "learner steps",
        "Mean age of their groups; those that wait beyond the delay wait for plays.",
    ),
}
