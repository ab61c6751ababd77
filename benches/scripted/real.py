"""The same comparison with the nano model: what the cores of this machine allow."""

from __future__ import annotations

import statistics
from typing import Any

from benches.scripted import figures
from benches.scripted.run import Ran, finished_run
from benches.scripted.setting import warm_up_steps
from spade_async.config.run_folder import RunFolder
from spade_async.ledger import LedgerReader
from spade_async.supervisor.resources import read_resources

STEPS = 15


def compare(bounds: tuple[int, ...], num_steps: int = STEPS) -> list[dict[str, Any]]:
    """Rows of all bounds, the first of which is 0; the model is made once and cached."""
    rows: list[dict[str, Any]] = []
    tokens = 0.0
    for bound in bounds:
        warm_up = warm_up_steps(bound)
        steps = warm_up + round(num_steps * (1.15 if bound else 1.0)) + 1
        values: dict[str, object] = {
            "async.staleness": bound,
            "eval.every": 1_000_000,
            "eval.instances_per_level": 1,
            "train.steps": steps,
        }
        with finished_run("nano.toml", values) as ran:
            if not rows:
                times = figures.read_steps(ran.folder)
                tokens = figures.trained_tokens(times, warm_up, num_steps)
            rows.append(_row(bound, ran, warm_up, tokens))
    sync = rows[0]
    limit = figures.ceiling(
        sync_s=sync["step_s"], generation_s=sync["generation_s"], learn_s=sync["learn_s"]
    )
    for row in rows:
        speed_up = row["tokens_per_s"] / sync["tokens_per_s"]
        row |= {"ceiling": limit, "speed_up": speed_up, "share_of_ceiling": speed_up / limit}
    return rows


def cores_used(ran: Ran) -> float:
    """CPU seconds per second of the whole run, its start included."""
    cost = read_resources(RunFolder(ran.folder))
    assert cost is not None
    return cost.cpu_seconds / ran.wall_s


def _row(bound: int, ran: Ran, warm_up: int, tokens: float) -> dict[str, Any]:
    found = figures.run_figures(ran.folder, warm_up, tokens)
    span = found.window
    with LedgerReader.open(RunFolder(ran.folder).ledger) as ledger:
        steps = [s for s in ledger.steps() if warm_up < s.step <= span.last + 1]
    # The engine counts the time in which it has something to decode.
    idle = statistics.fmean(
        [s.metrics["generator/idle_share"] for s in steps if "generator/idle_share" in s.metrics]
    )
    return {
        **figures.row(bound, found, idle, found.step_s * (1.0 - idle)),
        "cores_used": cores_used(ran),
        "load": ran.load,
    }
