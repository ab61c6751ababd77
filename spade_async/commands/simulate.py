"""`spade-async simulate`: what other settings would give, from a configuration or from a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from spade_async.config.load import load_resolved, resolve
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.errors import ConfigError
from spade_async.simulate.assumptions import Assumed, drawn_workload
from spade_async.simulate.natural_age import check_bounds
from spade_async.simulate.prediction import read_newest
from spade_async.simulate.recorded import MeasuredSteps
from spade_async.simulate.startup import bound_lines, load_of
from spade_async.simulate.whatif import Grid, Row, rows, setting_of, settings
from spade_async.simulate.workload import DrawnWorkload, Workload
from spade_async.supervisor.folder import read_info

STEPS = 60
MOST_ROWS = 200
_WIDTH = 120
"""Columns of a table that is not printed on a terminal."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says beside the file or folder."""

    sets: Sequence[str] = ()
    bounds: str = ""
    slots: str = ""
    generators: str = ""
    learner_speeds: str = ""
    split: int | None = None
    steps: int | None = None
    seed: int = 0
    from_run: Path | None = None
    assumed: Assumed = field(default_factory=Assumed)
    finds_limit: bool = True


@dataclass(frozen=True, slots=True)
class Work:
    """What is simulated, where it comes from, and for how long."""

    config: Config
    workload: Workload
    source: str
    latency_s: float
    steps: int
    warm_up: int
    measured: MeasuredSteps | None = None


def simulate(where: Path, options: Options, *, as_json: bool, console: Console) -> None:
    """Print the grid.

    Raises:
        ConfigError: an option that makes no sense, a setting that cannot be, no durations.
        LedgerError: a run without timings, or too short.
    """
    if not where.exists():
        raise ConfigError(
            f"{where} does not exist: name a configuration, e.g. configs/nano.toml, or a run folder"
        )
    work = _of_run(where, options) if where.is_dir() else _of_config(where, options)
    base = setting_of(work.config, latency_s=work.latency_s)
    wanted = settings(base, _grid(options))
    if base not in wanted:
        wanted.insert(0, base)
    if len(wanted) > MOST_ROWS:
        raise ConfigError(f"{len(wanted)} settings are too many to simulate: at most {MOST_ROWS}")
    found = rows(
        wanted,
        work.workload,
        steps=work.steps,
        warm_up=work.warm_up,
        finds_limit=options.finds_limit,
    )
    own = next(row for row in found if row.setting == base)
    if as_json:
        print(json.dumps(_as_json(work, found, own), indent=2))
    else:
        _show(work, found, own, console)


def tables() -> None:
    """Print the two tables of docs/simulate.md."""
    from spade_async.simulate import reference

    print(reference.tables())


def _of_config(where: Path, options: Options) -> Work:
    config = resolve(where, options.sets)
    if options.from_run is not None:
        return _recorded(config, options.from_run, options)
    workload = drawn_workload(config, options.assumed, options.seed)
    warm_up = config.async_.bounds[0] + 1
    steps = (options.steps or STEPS) + warm_up
    return Work(config, workload, "assumed durations", 0.0, steps, warm_up)


def _of_run(where: Path, options: Options) -> Work:
    if options.sets or options.from_run is not None:
        raise ConfigError(
            f"{where} is a run: its configuration is its own; --set and --from go with a "
            "configuration file"
        )
    return _recorded(load_resolved(where), where, options)


def _recorded(config: Config, run: Path, options: Options) -> Work:
    if options.assumed != Assumed():
        raise ConfigError(f"durations come from {run}: leave the options that assume them out")
    folder = RunFolder(run)
    starts = [float(start) for start in read_info(folder).get("starts_unix_s", [])]
    recorded, num_passed = read_newest(run, starts)
    measured, workload = recorded.measured, recorded.workload
    # The run's own number of steps: the same long pieces then fall into the same steps.
    warm_up = measured.warm_up
    steps = warm_up + (options.steps or measured.num_steps)
    passed = f" before its last {num_passed} starts, which did too few steps" if num_passed else ""
    is_own = config == recorded.config
    return Work(
        config, workload, f"durations of {run}{passed}", workload.latency_s, steps, warm_up,
        measured if is_own else None,
    )  # fmt: skip


def _grid(options: Options) -> Grid:
    if options.split is not None and (options.generators or options.learner_speeds):
        raise ConfigError("--split already says --generators and --learner-speed: leave them out")
    if options.split is not None and not 2 <= options.split <= 64:
        raise ConfigError(f"--split={options.split}: needs at least 2 devices and at most 64")
    if options.steps is not None and not 1 <= options.steps <= 100_000:
        raise ConfigError(f"--steps={options.steps}: needs at least 1 and at most 100000")
    return Grid(
        bounds=[_bounds(word) for word in _words(options.bounds)],
        slots=[int(_number("--slots", word, whole=True)) for word in _words(options.slots)],
        generators=[
            int(_number("--generators", word, whole=True)) for word in _words(options.generators)
        ],
        learner_speeds=[
            _number("--learner-speed", word) for word in _words(options.learner_speeds)
        ],
        splits=options.split,
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _number(option: str, word: str, *, whole: bool = False) -> float:
    try:
        value = float(int(word)) if whole else float(word)
    except ValueError:
        kind = "whole numbers" if whole else "numbers"
        raise ConfigError(f"{option}: {word!r} is no number; give {kind}, e.g. 1,2,4") from None
    if not 0 < value < 1e6:
        raise ConfigError(f"{option}={word}: must be above 0 and below a million")
    return value


def _bounds(word: str) -> tuple[int, int]:
    """Both bounds: "4" is 4 for the agent and 8 for the designer, "4:6" says both."""
    agent, colon, designer = word.partition(":")
    try:
        found = int(agent), int(designer) if colon else 2 * int(agent)
    except ValueError:
        raise ConfigError(
            f"--bounds: {word!r} is no bound; give AGENT or AGENT:DESIGNER, e.g. 0,2,4:8"
        ) from None
    if not all(0 <= bound <= 1000 for bound in found):
        raise ConfigError(f"--bounds={word}: a bound must be at least 0 and at most 1000")
    return found


def _as_json(work: Work, found: list[Row], own: Row) -> dict[str, Any]:
    return {
        "source": work.source,
        "workload": work.workload.summary,
        "steps": work.steps - work.warm_up,
        "measured": None if work.measured is None else asdict(work.measured),
        "predicted_step_s": own.result.step_s,
        "error_share": _error(work, own),
        "rows": [
            {**asdict(row.setting), **asdict(row.result), "binds": row.binds or None}
            for row in found
        ],
    }


def _error(work: Work, own: Row) -> float | None:
    """(predicted - measured) / measured; None without a measurement."""
    return None if work.measured is None else own.result.step_s / work.measured.step_s - 1.0


def _show(work: Work, found: list[Row], own: Row, console: Console) -> None:
    told = ", ".join(f"{key} {value:.4g}" for key, value in work.workload.summary.items())
    console.print(f"{work.source}: {told}", markup=False, highlight=False)
    if work.measured is not None:
        error = _error(work, own)
        console.print(
            f"step time of the run {work.measured.step_s:.3f} s over {work.measured.num_steps} "
            f"steps, predicted under its own settings {own.result.step_s:.3f} s ({error:+.1%})",
            markup=False,
            highlight=False,
        )
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH)
    console.print(_table(work, found, own))
    if isinstance(work.workload, DrawnWorkload):
        load = load_of(
            work.config,
            design=work.workload.designs,
            episode=work.workload.episodes,
            validity=work.workload.validity,
        )
        for line in bound_lines(work.config, check_bounds(load, *work.config.async_.bounds)):
            console.print(line, markup=False, highlight=False)


def _table(work: Work, found: list[Row], own: Row) -> Table:
    """A row per setting; generators and learner speed only where they differ."""
    columns: dict[str, list[str]] = {
        "bounds": [f"{r.setting.agent_bound}, {r.setting.designer_bound}" for r in found],
        "slots": [str(r.setting.slots) for r in found],
        "gene-\nrators": [str(r.setting.generators) for r in found],
        "learner\nspeed": [f"x{r.setting.learner_speed:g}" for r in found],
        "s/step": [f"{r.result.step_s:.3g}" for r in found],
        "change": [
            "" if r is own else f"{r.result.step_s / own.result.step_s - 1.0:+.0%}" for r in found
        ],
        "learner\nidle": [f"{r.result.learner_idle_share:.0%}" for r in found],
        "engine\nidle": [f"{r.result.generator_idle_share:.0%}" for r in found],
        "slots\nfree": [f"{r.result.slots_free_share:.0%}" for r in found],
        "age of\nagent": [_ages(r.result.agent_mean_age, r.result.agent_max_age) for r in found],
        "age of\ndesigner": [
            _ages(r.result.designer_mean_age, r.result.designer_max_age) for r in found
        ],
        "rollouts\nper hour": [f"{r.result.rollouts_per_hour:,.0f}" for r in found],
        "waste": [str(r.result.num_discarded) for r in found],
        "binds": [r.binds for r in found],
    }
    for optional in ("gene-\nrators", "learner\nspeed"):
        if len(set(columns[optional])) == 1:
            del columns[optional]
    table = Table(
        title=f"{work.steps - work.warm_up} steps in virtual time, after the warm-up",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for heading in columns:
        is_text = heading in ("bounds", "binds")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
    for row, cells in zip(found, zip(*columns.values(), strict=True), strict=True):
        table.add_row(*cells, style="bold" if row is own else "")
    return table


def _ages(average: float | None, most: int | None) -> str:
    return "-" if average is None or most is None else f"{average:.1f}/{most}"
