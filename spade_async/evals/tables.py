"""The end table for people: base -> trained per level with noise marks, and what the run cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spade_async.environment.text import clean, one_line
from spade_async.evals.figures import ALL_LEVELS, VALIDITY_WINDOW
from spade_async.telemetry.status import FAKE_NOTE, SCRIPTED_NOTE

WITHIN_NOISE = "within noise"
_UNKNOWN = "-"


def verdict(row: Mapping[str, Any]) -> str:
    """A difference against two standard errors of it: "within noise", "better", "worse", or "-".

    Compared instance by instance where the row has that (`HeldOutRow.difference`). Else the errors
    of both are added as if they were of different instances, which is careful.
    """
    difference, error = change(row)
    if difference is None or error is None:
        return _UNKNOWN
    if abs(difference) <= 2.0 * error:
        return WITHIN_NOISE
    return "better" if difference > 0 else "worse"


def change(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Difference of two versions and its standard error, None where a row does not say."""
    difference, error = row.get("difference"), row.get("difference_se")
    if difference is not None:
        return difference, error
    base, trained = row["base"], row["trained"]
    if base is None or trained is None:
        return None, None
    errors = (row["base_se"], row["trained_se"])
    return trained - base, None if None in errors else math.hypot(*errors)


def end_table(report: Mapping[str, Any]) -> RenderableType:
    """Everything `report` prints without --json."""
    return Group(_held_out(report), Text(), _figures(report), *_notes(report))


def _held_out(report: Mapping[str, Any]) -> RenderableType:
    base, trained = report.get("base_version"), report.get("trained_version")
    title = f"held-out accuracy, weights {base or _UNKNOWN} -> {trained or _UNKNOWN}"
    table = Table(title=title, title_justify="left")
    table.add_column("level")
    for name in ("n", "base", "trained", "difference"):
        table.add_column(name, justify="right")
    table.add_column("")
    rows = report["held_out"]
    has_all = len(rows) > 1 and rows[-1]["level"] == ALL_LEVELS
    for row in rows:
        table.add_row(
            Text(one_line(str(row["level"]))),
            str(row["n"]),
            _with_error(row["base"], row["base_se"]),
            _with_error(row["trained"], row["trained_se"]),
            _difference(row),
            verdict(row),
            end_section=has_all and row is rows[-2],
        )
    if not report["held_out"]:
        return Text("held-out accuracy: nothing was scored yet")
    return table


def _figures(report: Mapping[str, Any]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    lines: tuple[tuple[str, str], ...] = (
        ("learner steps", _count(report["steps"])),
        ("designer validity", _validity(report)),
        (
            "skeletons per full batch",
            f"at least {_count(report['skeletons_per_batch_min'])},"
            f" mean {_number(report['skeletons_per_batch_mean'], 1)}",
        ),
        ("largest family, last third", _share(report["largest_family_share_last_third"])),
        ("mean designed level", _levels(report)),
        (
            "episodes",
            f"{_count(report['episodes'])}, {_count(report['episodes_per_hour'])} per hour while"
            " learning",
        ),
        (
            "idle",
            f"generator {_share(report['generator_idle_share'])},"
            f" learner {_share(report['learner_idle_share'])}",
        ),
        (
            "samples",
            f"lost {_count(report['samples_lost'])},"
            f" trained twice {_count(report['samples_trained_twice'])},"
            f" over bound {_count(report['samples_over_bound'])},"
            f" lost to rollback {_count(report['lost_to_rollback'])}",
        ),
        (
            "tokens",
            f"discarded for age {_count(report['tokens_discarded_for_age'])},"
            f" cut at a deadline {_count(report['tokens_cut_at_deadline'])}",
        ),
        ("prompts", _prompts(report.get("prompts") or {})),
        ("updates set aside", _count(report["nonfinite_updates"])),
        (
            "cost",
            f"{_count(report['wall_seconds'])} s wall, {_count(report['cpu_seconds'])} CPU-s,"
            + (
                f" of that model {_count(report['warm_start_seconds'])} s wall;"
                if report["warm_start_seconds"] is not None
                else " no model was made;"
            )
            + f" peak memory {_number(report['peak_memory_gib'], 2)} GiB (PSS);"
            f" restarts {_count(report['restarts'])}",
        ),
    )
    for name, value in (*lines, *_behaviour(report), *_alarms(report)):
        grid.add_row(name, value)
    return grid


def _prompts(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Versions of the prompts, with the groups they made where there is more than one version."""
    parts = []
    for part, versions in counts.items():
        several = len(versions) > 1
        shown = ", ".join(
            clean(version) + (f" (groups: {count})" if several else "")
            for version, count in versions.items()
        )
        parts.append(f"{clean(part)} {shown}")
    return "; ".join(parts) or _UNKNOWN


def _behaviour(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """First against last third of the run, where there are episodes of several turns."""
    thirds = report.get("behaviour")
    if thirds is None:
        return []
    first, last = thirds["first_third"], thirds["last_third"]
    return [
        ("tokens before the first action", _shift(first, last, "tokens_before_action", _one_digit)),
        ("feedback used", _shift(first, last, "feedback_used_share", _share)),
        ("recovery after a rejected action", _shift(first, last, "recovery_share", _share)),
    ]


def _shift(
    first: Mapping[str, Any],
    last: Mapping[str, Any],
    key: str,
    shown: Callable[[float | None], str],
) -> str:
    return f"{shown(first[key])} first third -> {shown(last[key])} last third"


def _alarms(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """One line per alarm of the guards that was raised."""
    return [
        (
            f"alarm {alarm['kind']}",
            f"since step {alarm['raised_step']}, "
            + ("holds" if alarm["cleared_step"] is None else f"over at {alarm['cleared_step']}"),
        )
        for alarm in report.get("alarms", ())
    ]


def _notes(report: Mapping[str, Any]) -> list[RenderableType]:
    notes: list[RenderableType] = [
        # An alert may quote a program.
        Text(f"! {clean(str(alert), 4000)}", style="yellow")
        for alert in report["alerts"]
    ]
    if report["scripted"]:
        notes.insert(0, Text(SCRIPTED_NOTE, style="yellow"))
    if report.get("fake_weights"):
        notes.insert(0, Text(FAKE_NOTE, style="yellow"))
    if any(verdict(row) == WITHIN_NOISE for row in report["held_out"]):
        notes.append(
            Text("within noise: the difference is at most two standard errors of it.", style="dim")
        )
    return notes


def _validity(report: Mapping[str, Any]) -> str:
    overall = f"{_share(report['designer_validity_mean'])} over {_count(report['designs'])} designs"
    if report["designs"] <= VALIDITY_WINDOW:
        return overall
    return f"{_share(report['designer_validity'])} in its worst window of 200, {overall}"


def _levels(report: Mapping[str, Any]) -> str:
    first, last = report["mean_level_first_third"], report["mean_level_last_third"]
    error = report["mean_level_difference_se"]
    if first is None or last is None:
        return _UNKNOWN
    text = f"{first:.2f} first third -> {last:.2f} last third"
    if error is None:
        return text
    is_noise = abs(last - first) <= 2 * error
    return f"{text} (difference {last - first:+.2f} ± {error:.2f}{', within noise' * is_noise})"


def _difference(row: Mapping[str, Any]) -> str:
    difference, error = change(row)
    if difference is None:
        return _UNKNOWN
    return f"{difference:+.3f}" if error is None else f"{difference:+.3f} ± {error:.3f}"


def _with_error(value: float | None, error: float | None) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"


def _share(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.1%}"


def _count(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f}"


def _one_digit(value: float | None) -> str:
    return _number(value, 1)


def _number(value: float | None, digits: int) -> str:
    return _UNKNOWN if value is None else f"{value:.{digits}f}"
