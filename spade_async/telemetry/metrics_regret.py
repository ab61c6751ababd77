"""The catalog of regret, hints and solve rates: what the designer is paid from."""

from __future__ import annotations

from spade_async.telemetry.metric import Metric
from spade_async.telemetry.metric import per_step as _m

REGRET: dict[str, Metric] = {
    "regret/mean": _m(
        "return", "Mean over the step's environments of (return with hint - without)."
    ),
    "regret/paid_mean": _m(
        "return", "The same after the leak factor: what the designer is paid from."
    ),
    "regret/standard_error": _m(
        "return", "Mean standard error of an environment's regret, over its pairs."
    ),
    "regret/lower_bound": _m(
        "return", "Mean lower bound of an environment's regret at regret.confidence."
    ),
    "regret/stopped_share": _m(
        "share", "Environments whose class was certain before all pairs were played."
    ),
    "hints/<skill>/regret": _m(
        "return", "Running regret of a skill: mean over its newest 64 environments."
    ),
    "hints/<skill>/standard_error": _m("return", "Standard error of that mean."),
    "hints/<skill>/evidence": _m(
        "share", "Evidence that hints of the skill mislead, as part of what raises the alarm."
    ),
    "hints/<skill>/on": _m(
        "share", "1 while the skill is measured with hints, 0 while they are off."
    ),
    "regret/frontier_share": _m(
        "share", "Environments that are neither mastered nor out of reach."
    ),
    "regret/mastered_share": _m("share", "Environments solved without the hint almost always."),
    "regret/out_of_reach_share": _m("share", "Environments not solved even with the hint."),
    "regret/missing": _m(
        "environments", "Environments without an estimate in this step (our fault)."
    ),
    "solve/no_hint": _m(
        "share", "Mean success without the hint; a return in [-1, 1] maps to [0, 1]."
    ),
    "solve/with_hint": _m("share", "Mean success on the same seeds with the hint."),
}
