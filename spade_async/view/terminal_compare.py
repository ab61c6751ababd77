"""The comparison of runs for a terminal: one column per run, made to fit 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from spade_async.environment.text import clean, one_line

_UNKNOWN = "-"
_MOST_ALERTS = 5
_ROWS: tuple[tuple[str, str, str], ...] = (
    ("steps", "learner steps", ",.0f"),
    ("wall_seconds", "wall, s", ",.0f"),
    ("episodes", "rollouts", ",.0f"),
    ("episodes_per_hour", "rollouts/h", ",.0f"),
    ("designs", "designs", ",.0f"),
    ("designer_validity_mean", "validity", ".1%"),
    ("restarts", "restarts", ",.0f"),
    ("samples_lost", "samples lost", ",.0f"),
    ("samples_over_bound", "over bound", ",.0f"),
    ("nonfinite_updates", "updates set aside", ",.0f"),
)


def comparison(found: Mapping[str, Any]) -> RenderableType:
    """Everything that `compare` prints without --json."""
    runs = found["runs"]
    names = [chr(ord("A") + i) if i < 26 else f"run {i}" for i in range(len(runs))]
    parts: list[RenderableType] = [
        Text(f"{name}  {one_line(run['run'], 400)}", overflow="fold")
        for name, run in zip(names, runs, strict=True)
    ]
    parts += [Text(), _rule("configuration"), _configuration(found, names)]
    parts += [Text(), _rule("what they reached"), _figures(runs, names)]
    parts += [Text(), _rule("held-out success, newest scored weights"), _held_out(found, names)]
    if found["scored_differently"]:
        keys = ", ".join(found["scored_differently"])
        parts.append(Text(f"! not scored alike: {keys} differ", style="yellow"))
    parts.append(
        Text(
            f"against {names[0]}; within noise: at most two standard errors of the difference",
            style="dim",
        )
    )
    parts += [Text(), _rule("alerts"), *_alerts(runs, names)]
    return Group(*parts)


def _rule(title: str) -> Rule:
    return Rule(title, align="left", style="dim")


def _table(names: list[str], first: str = "") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, style="dim", overflow="fold")
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _configuration(found: Mapping[str, Any], names: list[str]) -> RenderableType:
    differing = found["config_differences"]
    if not differing:
        return Text("the same in all", style="dim")
    folded = set(found["absent_at_default"])
    table = _table(names, "key")
    for key, values in differing.items():
        if key not in folded:
            table.add_row(
                Text(clean(key)), *(Text(one_line(_value(value), 120)) for value in values)
            )
    if not folded:
        return table
    note = Text(
        f"{len(folded)} keys that an older run does not have stand at their defaults in the others",
        style="dim",
    )
    return Group(table, note) if len(folded) < len(differing) else note


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "not set" if value is None else str(value)


def _figures(runs: list[Mapping[str, Any]], names: list[str]) -> RenderableType:
    table = _table(names)

    def row(title: str, text: Callable[[Mapping[str, Any]], str]) -> None:
        table.add_row(title, *(text(run) for run in runs))

    for key, title, form in _ROWS:
        row(title, lambda run, key=key, form=form: _number(run[key], form))  # type: ignore[misc]
    row("regret", lambda run: _mean(run["regret"]))
    row("regret, last third", lambda run: _mean(run["regret_last_third"]))
    for name in runs[0]["classes"]:
        title = name.replace("_", " ")
        row(title, lambda run, name=name: _number(run["classes"][name], ".1%"))  # type: ignore[misc]
    return table


def _held_out(found: Mapping[str, Any], names: list[str]) -> RenderableType:
    levels = found["held_out_differences"]
    if not levels:
        return Text("nothing was scored yet", style="dim")
    table = _table(names, "level")
    for level, differences in levels.items():
        cells = []
        for run, difference in zip(found["runs"], differences, strict=True):
            scored = run["held_out"].get(level)
            lines = [_UNKNOWN if scored is None else _mean(scored)]
            if difference is not None:
                lines.append(f"{difference['difference']:+.3f} {difference['verdict']}")
            cells.append("\n".join(lines))
        table.add_row(Text(clean(level)), *cells)
    return table


def _alerts(runs: list[Mapping[str, Any]], names: list[str]) -> list[RenderableType]:
    said: list[RenderableType] = []
    for name, run in zip(names, runs, strict=True):
        alerts = run["alerts"]
        said.append(Text(f"{name}: {len(alerts)}" if alerts else f"{name}: none", style="bold"))
        said += [
            Text(f"  {one_line(text, 400)}", style="yellow") for text in alerts[-_MOST_ALERTS:]
        ]
        if len(alerts) > _MOST_ALERTS:
            said.append(Text(f"  and {len(alerts) - _MOST_ALERTS} older ones", style="dim"))
    return said


def _number(value: float | None, form: str) -> str:
    return _UNKNOWN if value is None else format(value, form)


def _mean(value: Mapping[str, Any]) -> str:
    mean, error = value["mean"], value["standard_error"]
    if mean is None:
        return _UNKNOWN
    return f"{mean:.3f}" if error is None else f"{mean:.3f} ± {error:.3f}"
