"""How much of the time both sides work, at each staleness bound: whole scripted runs.

`delay_bound`: delays of generator and learner are drawn and slept, so that cores do not matter; the
learner takes as long per step as the generator's slots do on average. The bounds are compared with
bound 0 of the same code, over the same total of trained tokens, after a warm-up. `unlimited`: the
same without a limit of length, where single requests take longer than the bound allows to wait;
its last row cuts, by name, what the learner has waited for as long as a step takes.
`cpu_bound`: the nano model on these cores. Meaning of every figure: docs/bench_overlap.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from benches.scripted import figures, real
from benches.scripted.run import finished_run
from benches.scripted.setting import NO_LIMIT, SLOTS, DelaySetting, warm_up_steps

AT_TOP = True
"""The figures are read by key (`delay_bound[4].rollouts_per_hour`)."""
BOUNDS = (0, 1, 2, 4, 8)
STEPS = 30
"""Measured, about: until as many tokens are trained as in so many steps of bound 0."""
EPISODE_S = 0.5
_SPARE = 1.15
"""A bound may need more steps for the same tokens: a step takes what is ready."""


def run(quick: bool) -> dict[str, Any]:
    """All bounds; `quick` compares two of them over a few short steps."""
    if quick:
        setting = DelaySetting(episode_s=0.05)
        return {
            "setting": _facts(setting),
            "delay_bound": _compare([(0, setting), (2, setting)], 3),
            "unlimited": [],
            "cpu_bound": [],
        }
    setting = DelaySetting(episode_s=EPISODE_S)
    unlimited = DelaySetting(episode_s=EPISODE_S, limit=NO_LIMIT)
    cutting = dataclasses.replace(unlimited, straggler_s=unlimited.generation_s)
    return {
        "setting": _facts(setting),
        "delay_bound": _compare([(bound, setting) for bound in BOUNDS], STEPS),
        "unlimited": _compare([(0, unlimited), (8, unlimited), (8, cutting)], STEPS),
        "cpu_bound": real.compare(BOUNDS),
    }


def table(result: dict[str, Any]) -> str:
    """One line per bound."""
    lines = []
    for name in ("delay_bound", "unlimited", "cpu_bound"):
        if not result[name]:
            continue
        ceiling = result[name][0]["ceiling"]
        lines.append(f"{name}: the ceiling is {ceiling:.2f} times bound 0")
        lines.append(
            f"{'bound':>5} {'s/step':>7} {'speed-up':>8} {'of ceiling':>10} {'rollouts/h':>10} "
            f"{'generator idle':>14} {'learner idle':>12} {'age mean/max':>12} {'designer':>9} "
            f"{'length':>6} {'over':>4} {'discarded':>9} {'cut':>5} {'cores':>5}"
        )
        lines += [_line(row) for row in result[name]]
    return "\n".join(lines)


def failures(result: dict[str, Any]) -> list[str]:
    """Promises that hold on any machine, at any load."""
    rows = [
        (name, row) for name in ("delay_bound", "unlimited", "cpu_bound") for row in result[name]
    ]
    return [
        f"{name}, bound {row['staleness_bound']}: {key} is {row[key]}, not 0"
        for name, row in rows
        for key in ("samples_over_bound", "tokens_discarded_for_age")
        if row[key] != 0
    ]


def _facts(setting: DelaySetting) -> dict[str, float]:
    return {
        "episode_mean_s": setting.episode_s,
        "token_limit_over_mean": setting.limit,
        "learner_s": setting.generation_s,
        "slots": SLOTS,
    }


def _compare(runs: list[tuple[int, DelaySetting]], num_steps: int) -> list[dict[str, Any]]:
    """Rows of all runs; the first has bound 0, whose tokens the others have to train as well."""
    rows: list[dict[str, Any]] = []
    tokens = 0.0
    for bound, setting in runs:
        warm_up = warm_up_steps(bound)
        # The last steps lie outside the window: tasks that hold a slot at its end must end too.
        steps = warm_up + round(num_steps * (_SPARE if bound else 1.0)) + 3
        with finished_run("scripted.toml", setting.values(bound, steps)) as ran:
            if not rows:
                times = figures.read_steps(ran.folder)
                tokens = figures.trained_tokens(times, warm_up, num_steps)
            found = figures.run_figures(ran.folder, warm_up, tokens)
            row = _row(bound, found) | {"straggler_s": setting.straggler_s}
            rows.append(row | {"cores_used": real.cores_used(ran), "load": ran.load})
    sync = rows[0]
    limit = figures.ceiling(
        sync_s=sync["step_s"], generation_s=sync["generation_s"], learn_s=sync["learn_s"]
    )
    for row in rows:
        speed_up = row["tokens_per_s"] / sync["tokens_per_s"]
        row |= {"ceiling": limit, "speed_up": speed_up, "share_of_ceiling": speed_up / limit}
    return rows


def _row(bound: int, found: figures.RunFigures) -> dict[str, Any]:
    idle = figures.idle_share(found.slot_s, SLOTS * found.window.seconds)
    return figures.row(bound, found, idle, found.generation_s(SLOTS))


def _line(row: dict[str, Any]) -> str:
    designer = row["designer_mean_age"]
    shown = "-" if designer is None else f"{designer:.1f}/{row['designer_max_age']}"
    ages = f"{row['mean_age']:.1f}/{row['max_age']}"
    ratio = "-" if row["length_ratio"] is None else f"{row['length_ratio']:.3f}"
    return (
        f"{row['staleness_bound']:>5} {row['step_s']:>7.2f} {row['speed_up']:>8.2f} "
        f"{row['share_of_ceiling']:>10.1%} {row['rollouts_per_hour']:>10,.0f} "
        f"{row['generator_idle_share']:>14.1%} {row['learner_idle_share']:>12.1%} {ages:>12} "
        f"{shown:>9} {ratio:>6} {row['samples_over_bound']:>4} "
        f"{row['tokens_discarded_for_age']:>9} {row['samples_cut_at_deadline']:>5} "
        f"{row['cores_used']:>5.2f}"
    )
