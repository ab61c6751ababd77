"""Predicted against measured: scripted runs, each replayed under its own setting and the others'.

Every run really happens, with real processes; only generator and learner sleep instead of working.
`spade-async simulate` then predicts each run's step time from the ledger of each of them. Rows:
whose work, under whose setting. The goal is 10 %, also under another bound or slot count.
"""

from __future__ import annotations

import os
from typing import Any

from benches.scripted.run import finished_run
from benches.scripted.setting import DelaySetting
from spade_async.simulate.prediction import RecordedRun, predict_step_s, read_run

GOAL = 0.10
STEPS = 90
"""Of each run. The work of two runs differs by chance: half as many steps give errors of 15 %."""
EPISODE_S = 0.3
SETTINGS: dict[str, dict[str, object]] = {
    "bounds 4, 8, 64 slots": {"async.staleness": 4},
    "bounds 1, 2, 64 slots": {"async.staleness": 1},
    "bounds 4, 8, 24 slots": {"async.staleness": 4, "engine.slots": 24},
}


def run(quick: bool) -> dict[str, Any]:
    """All runs, then all predictions; `quick` takes two of them and few short steps."""
    names = list(SETTINGS)[:2] if quick else list(SETTINGS)
    setting = DelaySetting(episode_s=0.1 if quick else EPISODE_S)
    found: dict[str, RecordedRun] = {}
    loads: dict[str, float] = {}
    for name in names:
        values = setting.values(4, 20 if quick else STEPS) | SETTINGS[name]
        with finished_run("scripted.toml", values) as ran:
            found[name] = read_run(ran.folder)
            loads[name] = ran.load
    rows = [
        {
            "work_of": work,
            "setting_of": target,
            "predicted_step_s": predict_step_s(found[work], found[target]),
            "measured_step_s": found[target].measured.step_s,
            "measured_steps": found[target].measured.num_steps,
            "load": loads[target],
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
