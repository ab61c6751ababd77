"""`spade-async plan`: what a configuration will take, worked out without a GPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from spade_async.config.load import resolve
from spade_async.config.schema import Config
from spade_async.config.size import in_units
from spade_async.errors import ConfigError
from spade_async.planning.memory import Device
from spade_async.planning.plan import Plan, make_plan
from spade_async.planning.rates import Rates, measured
from spade_async.supervisor.check_start import check_room_for_prompts, check_unmade_model
from spade_async.supervisor.model import is_folder


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says beside the file."""

    sets: Sequence[str] = ()
    from_run: Path | None = None
    given: Rates = field(default_factory=Rates)


def plan(where: Path, options: Options, *, as_json: bool, console: Console) -> int:
    """Print the plan. Returns 0 when it fits, 1 when not.

    Raises:
        ConfigError: the configuration does not hold, or nothing is known of its model.
        LedgerError: a run without timings.
    """
    for key, value in asdict(options.given).items():
        if isinstance(value, float) and not 0 < value < 1e12:
            raise ConfigError(f"--{key.replace('_', '-')}={value:g}: must be above 0")
    config = resolve(where, options.sets)
    rates = options.given
    if options.from_run is not None:
        rates = rates.over(measured(options.from_run))
    made = make_plan(config, rates)
    made = replace(made, problems=[*made.problems, *_prompt_problems(config)])
    if as_json:
        print(json.dumps(as_dict(made), indent=2))
    else:
        _show(made, console)
    return 0 if made.fits else 1


def _prompt_problems(config: Config) -> list[str]:
    """Why prompts leave no room for a reply, where a tokenizer is at hand."""
    if config.is_scripted:
        return []
    try:
        if is_folder(config.model.path):
            check_room_for_prompts(config, Path(config.model.path))
        else:
            check_unmade_model(config)
    except ConfigError as fault:
        return [str(fault)]
    return []


def as_dict(made: Plan) -> dict[str, Any]:
    """Every figure of a plan; sizes in bytes."""
    return {
        "fits": made.fits,
        "problems": made.problems,
        "remarks": made.remarks,
        "model": {
            "name": made.shape.name,
            "weights": made.shape.num_weights,
            "active_weights": made.shape.num_active,
        },
        "devices": [
            {
                "name": device.name,
                "capacity": device.capacity,
                "total": device.total,
                "processes": device.processes,
                "items": [asdict(item) for item in device.items],
                "largest": device.largest.name,
            }
            for device in made.devices
            if device.items
        ],
        "idle_gpus": list(made.placement.idle),
        "jail_bytes_at_most": made.jail_bytes,
        "work_per_step": {
            **asdict(made.work),
            "sampled_tokens": made.work.sampled_tokens,
            "trained_tokens": made.work.trained_tokens,
        },
        "rates": asdict(made.rates),
        "per_hour": None if made.pace is None else asdict(made.pace),
        "staleness": made.staleness,
        "disk": {**asdict(made.disk), "steady": made.disk.steady},
    }


def _show(made: Plan, console: Console) -> None:
    def say(text: str, style: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True, style=style)

    shape = made.shape
    active = f", {shape.num_active / 1e9:.3g} B used by a token" if shape.experts else ""
    say(f"model {shape.name}: {shape.num_weights / 1e9:.3g} B weights{active}")
    console.print(_table(made.devices))
    for index, device in enumerate(made.devices):
        alike = [d for d in made.devices[:index] if _sizes(d) == _sizes(device)]
        if device.items and not alike:
            say(f"{device.name}:")
            for item in sorted(device.items, key=lambda i: -i.num_bytes):
                turn = f", in the turn of the {item.turn}" if item.turn else ""
                say(f"  {in_units(item.num_bytes):>9}  {item.name}{turn}")
    say(f"the jail's workers: at most {in_units(made.jail_bytes)} of host memory on top")
    _show_pace(made, say)
    for line in (*made.staleness, *made.remarks):
        say(line)
    for line in made.problems:
        say(f"cannot run: {line}", "red")
    if made.fits:
        say(
            "It fits. Allowances (contexts, buffers, Python) are assumptions: docs/plan.md.",
            "green",
        )


def _show_pace(made: Plan, say: Any) -> None:
    work, pace, disk = made.work, made.pace, made.disk
    say(
        f"a step: {work.designs} designs of {work.design_tokens:,.0f} tokens, {work.episodes} "
        f"episodes of {work.episode_tokens:,.0f} (lengths: {work.lengths}); "
        f"{work.sampled_tokens:,.0f} tokens sampled, {work.trained_tokens:,.0f} trained"
    )
    if pace is None:
        say(
            "per hour: unknown; give --generator-tokens-per-s and --learner-tokens-per-s, or "
            "--from RUN"
        )
    else:
        say(
            f"per hour ({made.rates.source}): {pace.steps:,.1f} steps of {pace.step_s:,.1f} s, "
            f"{pace.sampled_tokens:,.0f} tokens sampled, {pace.episodes:,.0f} episodes, "
            f"{pace.designs:,.0f} designs; the slower side: {pace.slower}"
        )
    grows = ""
    if disk.ledger_per_day is not None and disk.written_per_day is not None:
        grows = (
            f"; it grows by {in_units(disk.ledger_per_day)} a day, and "
            f"{in_units(disk.written_per_day)} of checkpoints are written in one"
        )
    say(f"disk: {in_units(disk.steady)} for checkpoints, weights and tokens{grows}")


def _table(found: list[Device]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("device", "processes", "needs", "of", "largest item", ""):
        table.add_column(heading, overflow="fold")
    for device in found:
        if not device.items:
            table.add_row(device.name, "-", "-", in_units(device.capacity), "", "")
            continue
        largest = device.largest
        table.add_row(
            device.name,
            ", ".join(device.processes),
            in_units(device.total),
            in_units(device.capacity),
            f"{largest.name}, {in_units(largest.num_bytes)}",
            "" if device.fits else "too much",
            style="" if device.fits else "red",
        )
    return table


def _sizes(device: Device) -> list[int]:
    return [item.num_bytes for item in device.items]
