"""Runs of a long bench: kept as they end, so that it goes on where it stopped, and summed up."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any


def kept_runs(keep: Path | None, steps: int) -> list[dict[str, Any]]:
    """The runs of that many steps in the file; [] without one."""
    if keep is None or not keep.exists():
        return []
    return [r for r in json.loads(keep.read_text())["result"]["runs"] if r["steps"] == steps]


def keep_runs(keep: Path | None, bench: str, result: dict[str, Any]) -> None:
    """Write what there is so far, if there is a file for it."""
    if keep is not None:
        keep.write_text(json.dumps({"bench": bench, "result": result}, indent=2) + "\n")


def spread(runs: list[dict[str, Any]], key: str, digits: int) -> str:
    """Mean ± standard deviation of a figure; "-" where no run has it."""
    values = [r[key] for r in runs if r[key] is not None]
    if not values:
        return "-"
    text = f"{fmean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {stdev(values):.{digits}f}"
