"""Part of the catalog (`metrics.py`): what deaths and hangs cost a run. (unit, meaning) by tag."""

from __future__ import annotations

LIFE_METRICS: dict[str, tuple[str, str]] = {
    "lives/deaths/<part>/<cause>": (
        "deaths",
        "Deaths of generators or of the learner so far, by its cause: signal_9, exit_1_NAME.",
    ),
    "lives/restarts": ("restarts", "Dead parts that were started again so far."),
    "lives/backoff_s": ("seconds", "Pauses before those restarts so far, added up."),
    "lives/hangs": ("hangs", "Parts found to hang so far."),
    "lives/fall_backs": (
        "times",
        "How often the learner came back from a checkpoint so far; a resume is not counted.",
    ),
    "lives/steps_undone": ("learner steps", "Steps that those fall-backs undid, trained again."),
    "lives/tasks_again": ("tasks", "Tasks of dead generators that were asked for again so far."),
    "lives/named_s": (
        "seconds",
        "Longest time since the step before from a death, as the supervisor sees it, to its alert.",
    ),
    "lives/back_s": (
        "seconds",
        "Longest time since the step before from a death to the first word of who came after.",
    ),
}
