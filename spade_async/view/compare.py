"""Several runs side by side: what was set differently, and what came of it.

The first run is what the others are held against. A difference of held-out success counts when it
is more than two of its standard errors, as in the end table of one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from spade_async.config.load import flatten
from spade_async.config.schema import Config
from spade_async.evals.tables import verdict
from spade_async.view.run import ViewedRun, flat
from spade_async.view.totals import regrets

ABSENT = "(absent)"
"""A key that the configuration of an older run does not have."""
FIGURES = (
    "steps", "wall_seconds", "episodes", "episodes_per_hour", "designs", "designer_validity_mean",
    "restarts", "samples_lost", "samples_over_bound", "nonfinite_updates",
)  # fmt: skip
"""Keys of `report --json` that are told of each run."""
HELD_OUT_KEYS = ("domain.hook", "eval.instances_per_level", "eval.temperature")
"""Runs that differ in one of these are not scored alike."""


def of_run(run: ViewedRun, report: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared of one run."""
    found = regrets(run, report["steps"])
    known = sum(found.classes.values())
    return {
        "run": str(run.folder.root),
        "config": flat(run.config),
        **{key: report.get(key) for key in FIGURES},
        "regret": asdict(found.all),
        "regret_last_third": asdict(found.last),
        "classes": {
            name: None if not known else count / known for name, count in found.classes.items()
        },
        "held_out": {
            row["level"]: {
                "n": row["n"],
                "version": report["trained_version"] or report["base_version"],
                "mean": row["trained"] if row["trained"] is not None else row["base"],
                "standard_error": (
                    row["trained_se"] if row["trained"] is not None else row["base_se"]
                ),
                "is_trained": row["trained"] is not None,
            }
            for row in report["held_out"]
        },
        "alerts": [str(alert) for alert in report["alerts"]],
    }


def compared(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Everything that `compare --json` prints.

    Args:
        runs: of `of_run`, at least two; the first is held against.
    """
    keys = list(dict.fromkeys(key for run in runs for key in run["config"]))
    values = {key: [run["config"].get(key, ABSENT) for run in runs] for key in keys}
    differing = {key: v for key, v in values.items() if any(x != v[0] for x in v)}
    levels = list(dict.fromkeys(level for run in runs for level in run["held_out"]))
    return {
        "runs": [{k: v for k, v in run.items() if k != "config"} for run in runs],
        "config_differences": differing,
        "absent_at_default": _absent_at_default(differing),
        "held_out_differences": {
            level: [None, *(_against(runs[0], run, level) for run in runs[1:])] for level in levels
        },
        "scored_differently": [key for key in HELD_OUT_KEYS if key in differing],
    }


def _absent_at_default(differing: Mapping[str, list[Any]]) -> list[str]:
    """Keys that an older run does not have and the others left alone: no choice of anyone's."""
    defaults = flatten(Config())
    return [
        key
        for key, values in differing.items()
        if ABSENT in values and all(v in (ABSENT, defaults.get(key, ABSENT)) for v in values)
    ]


def _against(first: dict[str, Any], other: dict[str, Any], level: str) -> dict[str, Any] | None:
    """Difference of one level to the first run, with the word for it."""
    base, trained = first["held_out"].get(level), other["held_out"].get(level)
    if base is None or trained is None or None in (base["mean"], trained["mean"]):
        return None
    row = {
        "base": base["mean"],
        "base_se": base["standard_error"],
        "trained": trained["mean"],
        "trained_se": trained["standard_error"],
    }
    errors = (row["base_se"], row["trained_se"])
    return {
        "difference": row["trained"] - row["base"],
        "standard_error": None if None in errors else sum(e * e for e in errors) ** 0.5,
        "verdict": verdict(row),
    }
