"""`spade-async report`: what a run reached, from its ledger and its resources."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from spade_async.config.load import load_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.evals import behaviour, figures, tables
from spade_async.ledger import LedgerReader
from spade_async.supervisor.folder import read_info
from spade_async.supervisor.resources import Resources, read_resources


def build_report(run_dir: Path) -> dict[str, Any]:
    """Every figure of a run under the keys of ``report --json``; None where there is no number.

    Raises:
        ConfigError: not a run folder.
        LedgerError: no readable ledger in it.
    """
    folder = RunFolder(run_dir)
    config = load_resolved(run_dir)
    info = read_info(folder)
    resources = read_resources(folder)
    cost = asdict(resources) if resources else dict.fromkeys(Resources.__dataclass_fields__)
    with LedgerReader.open(folder.ledger) as ledger:
        steps = ledger.steps()
        num_steps = max((row.step for row in steps), default=0)
        counters: dict[str, Any] = ledger.get_state("counters", {}) or {}
        samples = ledger.sample_counts()
        agent_bound, designer_bound = config.async_.bounds
        table = figures.held_out(ledger)
        validity, validity_mean, designs = figures.design_validity(ledger)
        first, last = figures.mean_label_by_third(ledger, figures.LEVEL_LABEL, num_steps)
        skeletons_min, skeletons_mean = figures.skeletons_per_batch(
            ledger, config.designer.groups_per_step
        )
        starts = [float(start) for start in info.get("starts_unix_s", [])]

        def counter(key: str, tag: str) -> float | None:
            value = counters.get(key, figures.newest(steps, tag))
            return None if value is None else float(value)

        return {
            "scripted": config.is_scripted,
            "fake_weights": config.run.fake_weights,
            "wall_seconds": cost["wall_seconds"],
            "cpu_seconds": cost["cpu_seconds"],
            "warm_start_seconds": cost["warm_start_seconds"],
            "steps": num_steps,
            "designs": designs,
            "designer_validity": validity,
            "designer_validity_mean": validity_mean,
            "skeletons_per_batch_min": skeletons_min,
            "skeletons_per_batch_mean": skeletons_mean,
            "largest_family_share_last_third": figures.largest_share_last_third(
                ledger, figures.FAMILY_LABEL, num_steps
            ),
            "mean_level_first_third": first.mean,
            "mean_level_last_third": last.mean,
            "mean_level_difference_se": _difference_se(first, last),
            "samples_over_bound": ledger.over_bound(
                {"agent": agent_bound, "designer": designer_bound}
            ),
            "tokens_discarded_for_age": counter(
                "tokens_discarded_for_age", "tokens/discarded_for_age"
            ),
            "tokens_cut_at_deadline": counter("tokens_cut_at_deadline", "tokens/cut_at_deadline"),
            "samples_lost": ledger.lost(),
            "lost_to_rollback": samples.unused.get("lost_to_rollback", 0),
            "samples_trained": ledger.num_trained(),
            "samples_trained_twice": ledger.trained_twice(),
            "samples_missing": samples.missing,
            "episodes": samples.episodes,
            "episodes_per_hour": figures.episode_rate(ledger, steps, starts),
            "peak_memory_gib": cost["peak_memory_gib"],
            "generator_idle_share": figures.weighted_mean(
                steps, "generator/idle_share", "learner/step_s"
            ),
            "learner_idle_share": figures.weighted_mean(
                steps, "learner/idle_share", "learner/step_s"
            ),
            "prompts": ledger.prompt_counts(),
            "restarts": cost["restarts"],
            "nonfinite_updates": ledger.nonfinite_updates(),
            "alerts": [alert.text for alert in ledger.alerts()],
            "behaviour": behaviour.by_third(ledger, num_steps),
            "alarms": (ledger.get_state("guards") or {}).get("history", []),
            "base_version": table.base_version,
            "trained_version": table.trained_version,
            "held_out": [asdict(row) for row in table.rows],
        }


def report(run_dir: Path, *, as_json: bool, console: Console) -> None:
    """Print the report of a run."""
    figures_of_run = build_report(run_dir)
    if as_json:
        print(json.dumps(figures_of_run, indent=2))
    else:
        console.print(tables.end_table(figures_of_run))


def _difference_se(first: figures.Mean, last: figures.Mean) -> float | None:
    if first.standard_error is None or last.standard_error is None:
        return None
    return math.hypot(first.standard_error, last.standard_error)
