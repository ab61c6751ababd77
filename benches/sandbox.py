"""The jail's ladder: limits of the machine, the jail's rungs, other jails, all in one run.

Host and workers share one CPU; all rungs are played in turns. How it is measured and how to read
it: `docs/bench_sandbox.md`. `--source FILE` plays your own environment, `--draw FILE` writes the
picture. Sustained episodes and memory are measured after the ladder, as in `benches episodes`.
"""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benches import episodes
from benches.ladder import asynchronous, drawing, floor, jailed, limit, native, ratios, turns
from benches.ladder.cpu import Pinned
from benches.ladder.files import room
from benches.ladder.plan import Plan
from benches.ladder.row import Row, figure


def run(quick: bool, source: Path | None = None, draw: Path | None = None) -> dict[str, Any]:
    """Measure the ladder, then sustained episodes and memory.

    Args:
        quick: the smallest size that still runs every rung.
        source: a file with one class that ends in Env, played instead of the built-in game.
        draw: where to write the ladder as SVG.
    """
    plan = Plan(quick)
    if source is not None:
        text = source.read_text()
        plan = Plan(quick, source=text, numpy_source=text, own_source=True)
    room(4096)
    load_before = os.getloadavg()[0]
    with Pinned() as cpus, ExitStack() as stack:
        rows = [
            *limit.rows(stack, plan),
            *native.rows(stack, plan),
            *asynchronous.rows(stack, plan),
            *jailed.rows(stack, plan),
            *floor.rows(plan),
        ]
        turns.play(rows, plan.num_rounds)
    result = {
        **nested(rows),
        **episodes.core_figures(plan),
        "rows": [listed(row) for row in rows],
        "run": {
            "cpus": cpus,
            "rounds": plan.num_rounds,
            "load_before": load_before,
            "load_after": os.getloadavg()[0],
            "source": "built-in game" if source is None else source.name,
            "source_bytes": len(plan.source.encode()),
        },
    }
    result["ratios"] = ratios.judged(result)
    if draw is not None:
        caption = f"{platform.machine()}, Linux {platform.release()}, Python "
        caption += f"{platform.python_version()}, one CPU, {plan.num_rounds} rounds"
        draw.write_text(drawing.svg(result["rows"], caption))
    return result


def nested(rows: list[Row]) -> dict[str, Any]:
    """Figures by their dotted keys; None where there is no figure."""
    found: dict[str, Any] = {}
    for row in rows:
        group, _, name = row.key.partition(".")
        if name:
            found.setdefault(group, {})[name] = figure(row.samples)
        else:
            found[group] = figure(row.samples)
    return found


def listed(row: Row) -> dict[str, Any]:
    """A row of the table, with the reason where there is no figure."""
    return {
        "key": row.key,
        "label": row.label,
        "figure": figure(row.samples),
        "missing": row.missing,
    }


def failures(result: dict[str, Any]) -> list[str]:
    """Rungs that broke, as opposed to those that are not there."""
    rows = [f"{row['label']}: {row['missing']}" for row in result["rows"] if row["missing"]]
    return [row for row in rows if ": failed: " in row] + episodes.failures(result)


def table(result: dict[str, Any]) -> str:
    """The ladder, the ratios, episodes and memory as text."""
    lines = [f"{'microseconds':<44}{'median':>10}{'p10':>10}{'p99':>11}{'n':>7}"]
    for row in result["rows"]:
        if row["figure"] is None:
            lines.append(f"{row['label']:<44}{row['missing']}")
            continue
        f = row["figure"]
        lines.append(
            f"{row['label']:<44}{f['median']:>10,.1f}{f['p10']:>10,.1f}{f['p99']:>11,.1f}{f['n']:>7}"
        )
        if row["missing"]:
            lines.append(f"    {row['missing']}")
    lines += ["", ratios.table(result["ratios"]), "", episodes.core_table(result)]
    where = result["run"]
    lines.append(
        f"CPU {where['cpus']}, load {where['load_before']:.1f} before and "
        f"{where['load_after']:.1f} after, {where['rounds']} rounds, {where['source']} of "
        f"{where['source_bytes']} bytes"
    )
    return "\n".join(lines)
