"""`spade-async replay RUN STEP` for a step that was trained: what each sample did to it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from spade_async.config.run_folder import RunFolder
from spade_async.errors import ConfigError

_STEP = re.compile(r"(?:batch-)?(?:\d+[-.])?(\d+)(?:\.npz|\.json)?")


def step_of(run_dir: Path, name: str) -> int | None:
    """The trained step that a name means; None when it is of a batch that was set aside."""
    found = _STEP.fullmatch(Path(name).name)
    if found is None:
        return None
    step = int(found[1])
    aside = RunFolder(run_dir).quarantine
    return None if list(aside.glob(f"batch-*-{step}.npz")) else step


def figures(run_dir: Path, step: int, model_folder: Path) -> dict[str, Any]:
    """Everything that ``replay RUN STEP --json`` prints.

    Raises:
        ConfigError: no step has that number.
        RunFolderError: it cannot be run again; says why.
    """
    if step < 1:
        raise ConfigError(f"step {step}: the first trained step is 1")
    from spade_async.learner.rerun import rerun

    done = rerun(run_dir, step, model_folder)
    return {
        "step": done.step,
        "branch": done.branch,
        "checkpoint": done.checkpoint,
        "steps_trained_again": done.trained_again,
        "loss": done.found.loss,
        "loss_then": done.loss_then,
        "grad_norm": done.found.grad_norm,
        "grad_norm_then": done.grad_norm_then,
        "samples": [asdict(sample) for sample in done.found.samples],
    }


def show(found: dict[str, Any], *, as_json: bool, console: Console) -> None:
    """Print it; the samples with the largest part of the gradient first."""
    if as_json:
        print(json.dumps(found, indent=2))
        return
    start = found["checkpoint"] or "the start model"
    again = f", {found['steps_trained_again']} steps trained again" * bool(
        found["steps_trained_again"]
    )
    name = f"{found['branch']}.{found['step']}"
    for line in (
        f"step {name}: {len(found['samples'])} samples, from {start}{again}",
        f"loss {_number(found['loss'])} (then {_number(found['loss_then'])}), gradient norm "
        f"{_number(found['grad_norm'])} (then {_number(found['grad_norm_then'])})",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("sample", overflow="fold")
    for name in ("role", "age", "adv", "tokens", "ratio", "max", "weight", "grad", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    for sample in sorted(found["samples"], key=lambda s: -abs(s["share"] or 0.0)):
        share = sample["share"]
        table.add_row(
            sample["sample_id"],
            sample["role"][:8],
            str(sample["age"]),
            f"{sample['advantage']:+.2g}",
            str(sample["tokens"]),
            *(_number(sample[key]) for key in ("ratio_mean", "ratio_max", "weight_mean")),
            _number(sample["grad_norm"]),
            "-" if share is None else f"{share:+.1%}",
        )
    console.print(table)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
