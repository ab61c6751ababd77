"""The catalog of what became of programs: validity, pool, repairs, second opinions."""

from __future__ import annotations

from spade_async.telemetry.metric import Metric
from spade_async.telemetry.metric import per_step as _m

CONTRACT: dict[str, Metric] = {
    "designer/validity": _m("share", "Designs of the step that passed every validation stage."),
    "designer/validity_window": _m("share", "The same over the last 200 designs."),
    "validity/stage/<stage>": _m("designs", "Designs of the step rejected at this stage."),
    "pool/programs": _m("programs", "Programs of agent.pool that are played."),
    "pool/skipped": _m("files", "Files of agent.pool that cannot be used."),
    "pool/failed": _m("programs", "Programs of agent.pool that failed in play since the start."),
    "designer/repaired/<kind>": _m(
        "designs",
        "Designs of the step that were repaired: fences, braces (their text), turn (written anew).",
    ),
    "designer/validator/<verdict>": _m(
        "designs", "Verdicts of the validator in the step: yes, no, none."
    ),
    "designer/judge/<verdict>": _m("designs", "Verdicts of the self-judge: yes, no, none."),
    "designer/no_verdict": _m("designs", "Replies of validator or judge without a yes or no."),
}
