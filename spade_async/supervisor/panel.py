"""A `RunStatus` as a panel and as one plain line."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from spade_async.environment.text import clean
from spade_async.telemetry.status import FAKE_NOTE, SCRIPTED_NOTE, RunStatus

UNKNOWN = "-"
_MAX_MIX = 6
_MAX_ALERTS = 4
_MOST_CHARS = 4000
"""Of an alert or a failure, which may quote a program."""

_Figures = tuple[tuple[str, str], ...]


def panel(status: RunStatus) -> RenderableType:
    """The whole live display."""
    body: list[RenderableType] = [_progress(status)]
    if status.is_scripted:
        body.append(Text(SCRIPTED_NOTE, style="yellow"))
    if status.is_fake:
        body.append(Text(FAKE_NOTE, style="yellow"))
    if status.metrics:
        body.append(_figures(status))
        body += [Text(line, style="dim") for line in _mixes(status.metrics)]
    if status.processes:
        body.append(_processes(status))
    if status.limited_by:
        body.append(Text.assemble(("limited by ", "bold"), clean(status.limited_by, _MOST_CHARS)))
    if status.alarms:
        body.append(Text(f"alarms that hold now: {', '.join(status.alarms)}", style="bold yellow"))
    body += [
        Text(clean(f"! {clock_of(alert.unix_s)}{alert}", _MOST_CHARS), style="yellow")
        for alert in status.alerts[-_MAX_ALERTS:]
    ]
    if bad_rows := status.metrics.get("grounding/bad_rows"):
        body.append(Text(f"corpus: {bad_rows:.0f} bad rows skipped, named in the log"))
    if status.failure:
        body.append(Text(clean(status.failure, _MOST_CHARS), style="bold red"))
    title = f"spade-async · {status.state} · weights {status.policy_version}"
    return Panel(Group(*body), title=title, title_align="left", border_style="cyan")


def plain_line(status: RunStatus) -> str:
    """The same in one line, for logs and pipes."""
    if status.state in ("starting", "warm_start"):
        waits = "; ".join(p.waits_for for p in status.processes if p.waits_for)
        return f"{status.state}{': ' + waits if waits else ''}"
    metrics = status.metrics
    parts = [
        f"{status.state} step {status.step}/{status.steps}{' (scripted)' * status.is_scripted}"
        f"{' (fake weights)' * status.is_fake}",
        f"validity {share(metrics.get('designer/validity'))}",
        f"regret {number(metrics.get('regret/mean'), 3)}",
        f"solved {share(metrics.get('solve/no_hint'))}"
        f" (hint {share(metrics.get('solve/with_hint'))})",
        f"episodes/h {count(status.episodes_per_hour)}",
        f"staleness {number(metrics.get('staleness/agent_max'), 0)}",
        f"idle generator {share(metrics.get('generator/idle_share'))}"
        f" learner {share(metrics.get('learner/idle_share'))}",
    ]
    if status.limited_by:
        parts.append(f"limited by {status.limited_by.partition(':')[0]}")
    if status.alarms:
        parts.append(f"alarms {', '.join(status.alarms)}")
    if status.alerts:
        newest = status.alerts[-1]
        parts.append(f"alerts {len(status.alerts)}: {clock_of(newest.unix_s)}{newest}")
    return " | ".join(parts)


def clock_of(unix_s: float) -> str:
    """When an alert was told, in local time; "" when that is not known."""
    return time.strftime("%m-%d %H:%M ", time.localtime(unix_s)) if unix_s > 0 else ""


def share(value: float | None) -> str:
    """A share in percent, "-" when there is none."""
    return UNKNOWN if value is None else f"{value:.0%}"


def number(value: float | None, digits: int) -> str:
    """A number with this many digits after the point, "-" when there is none."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def count(value: float | None) -> str:
    """A large number with thousands marks, "-" when there is none."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """A latency in ms or s, "-" when there is none."""
    if value is None:
        return UNKNOWN
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.1f} s"


def _progress(status: RunStatus) -> RenderableType:
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, justify="right")
    if status.state == "warm_start":
        done, total, label = status.metrics.get("warm_start/share", 0.0), 1.0, "model"
        right = f"{done:.0%}"
    else:
        done, total, label = float(status.step), float(max(1, status.steps)), "step"
        right = f"{status.step}/{status.steps}"
    grid.add_row(label, ProgressBar(total=total, completed=min(done, total)), right)
    return grid


def _figures(status: RunStatus) -> RenderableType:
    get = status.metrics.get
    columns: tuple[_Figures, ...] = (
        (
            ("validity", share(get("designer/validity"))),
            ("last 200 designs", share(get("designer/validity_window"))),
            ("regret", number(get("regret/mean"), 3)),
            ("skeletons/batch", number(get("designer/skeletons_per_batch"), 0)),
        ),
        (
            ("solved without hint", share(get("solve/no_hint"))),
            ("solved with hint", share(get("solve/with_hint"))),
            ("frontier", share(get("regret/frontier_share"))),
            ("held out", share(get("eval/accuracy"))),
        ),
        (
            ("episodes/h", count(status.episodes_per_hour)),
            ("generator idle", share(get("generator/idle_share"))),
            ("learner idle", share(get("learner/idle_share"))),
            ("jail p50 / p99", f"{seconds(get('jail/p50_s'))} / {seconds(get('jail/p99_s'))}"),
        ),
        (
            ("staleness agent", number(get("staleness/agent_max"), 0)),
            ("staleness designer", number(get("staleness/designer_max"), 0)),
            ("clipped", share(get("learner/clip_share"))),
            ("oldest wait", seconds(status.oldest_wait_seconds)),
        ),
    )
    return _Columns(columns)


class _Columns:
    """Four columns of figures where they fit, else two, else one: nothing is ever cut off."""

    def __init__(self, columns: tuple[_Figures, ...]) -> None:
        self._columns = columns

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for num in (len(self._columns), 2, 1):
            grid = self._grid(num)
            if num == 1 or console.measure(grid).maximum <= options.max_width:
                yield grid
                return

    def _grid(self, num: int) -> Table:
        grid = Table.grid(padding=(0, 2))
        for _ in range(num):
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(justify="right", no_wrap=True)
        for first in range(0, len(self._columns), num):
            for row in zip(*self._columns[first : first + num], strict=True):
                grid.add_row(*[cell for pair in row for cell in pair])
        return grid


def _mixes(metrics: Mapping[str, float]) -> list[str]:
    """One line per label: its most played values with their shares."""
    by_label: dict[str, list[tuple[float, str]]] = {}
    for tag, value in metrics.items():
        parts = tag.split("/")
        if len(parts) == 3 and parts[0] == "mix":
            by_label.setdefault(parts[1], []).append((value, parts[2]))
    lines = []
    for label, values in sorted(by_label.items()):
        values.sort(key=lambda pair: (-pair[0], pair[1]))
        shown = "  ".join(f"{name} {value:.0%}" for value, name in values[:_MAX_MIX])
        more = f"  +{len(values) - _MAX_MIX}" if len(values) > _MAX_MIX else ""
        lines.append(f"{label}: {shown}{more}")
    return lines


def _processes(status: RunStatus) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for process in status.processes:
        waits = f"waits for {process.waits_for}" if process.waits_for else ""
        if waits and process.oldest_wait_s >= 1:
            waits += f" ({process.oldest_wait_s:.0f} s)"
        pid = "" if process.pid is None else str(process.pid)
        grid.add_row(
            Text(process.name),
            Text(pid, style="dim"),
            Text(process.state),
            Text(clean(waits), style="dim"),
        )
    return grid
