"""Predicted against measured: scripted runs, each replayed under its own setting and the others'.

Every run really happens, with real processes; only generator and learner sleep instead of working.
`spade-async simulate` then predicts each run's step time from the ledger of each of them. Rows:
whose work, under whose setting. The goal is 10 %, also under another bound or slot count.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benches.scripted.run import finished_run
from benches.scripted.setting import DelaySetting
from spade_async.simulate.prediction import RecordedRun, predict_step_s, read_run

GOAL = 0.10
STEPS = 90
"""Of the slowest run. The work of two runs differs by chance: half as many steps give errors of
15 %."""
EPISODE_S = 0.3
SETTINGS: dict[str, tuple[float, dict[str, object]]] = {
    "bounds 4, 8, 64 slots": (2.4, {"async.staleness": 4}),
    "bounds 1, 2, 64 slots": (1.0, {"async.staleness": 1}),
    "bounds 4, 8, 24 slots": (1.0, {"async.staleness": 4, "engine.slots": 24}),
}
"""Settings, and how many times as many steps each does in the same time."""


def run(quick: bool) -> dict[str, Any]:
    """All runs side by side, then all predictions; `quick` takes two of them and few short steps.

    They mostly sleep. What the machine does meanwhile makes every piece longer: runs one after the
    other would each be measured on a machine of another speed.
    """
    names = list(SETTINGS)[:2] if quick else list(SETTINGS)
    setting = DelaySetting(episode_s=0.1 if quick else EPISODE_S)

    def one(name: str) -> tuple[RecordedRun, float]:
        factor, settings = SETTINGS[name]
        steps = 20 if quick else round(factor * STEPS)
        with finished_run("scripted.toml", setting.values(4, steps) | settings) as ran:
            return read_run(ran.folder), ran.load

    with ThreadPoolExecutor(len(names)) as pool:
        ran = dict(zip(names, pool.map(one, names), strict=True))
    rows = [
        {
            "work_of": work,
            "setting_of": target,
            "predicted_step_s": predict_step_s(ran[work][0], ran[target][0]),
            "measured_step_s": ran[target][0].measured.step_s,
            "measured_steps": ran[target][0].measured.num_steps,
            "load": ran[target][1],
        }
        for work in names
        for target in names
    ]
    for row in rows:
        row["error_share"] = row["predicted_step_s"] / row["measured_step_s"] - 1.0
    return {"goal": GOAL, "rows": rows, "cores": len(os.sched_getaffinity(0))}


def table(result: dict[str, Any]) -> str:
    """One line per pair."""
    lines = [f"{'work of':<24} {'setting of':<24} {'predicted':>9} {'measured':>8} {'error':>6}"]
    lines += [
        f"{row['work_of']:<24} {row['setting_of']:<24} {row['predicted_step_s']:>8.3f}s "
        f"{row['measured_step_s']:>7.3f}s {row['error_share']:>+6.1%}"
        for row in result["rows"]
    ]
    within = sum(abs(row["error_share"]) <= result["goal"] for row in result["rows"])
    lines.append(f"{within} of {len(result['rows'])} within {result['goal']:.0%}")
    return "\n".join(lines)
