"""What age costs on the nano loop: no correction, TIS and decoupled PPO at ages 0, 4 and 16.

Real self-play of configs/nano.toml from one warm start, so many learner steps each, at a learning
rate at which these steps move the policy. The age is enforced, not hoped for: both bounds are the
age, and with ``async.fill`` the learner waits at each step until the bounds are full, so that the
samples of step n are min(n, age) steps old; the ages that were trained are in the figures. Seeds go
outermost: a bench that is stopped early has whole rounds. With ``--keep FILE`` every run is written
there as it ends, and one that is there is not made again. Two runs share the machine: nothing of a
run depends on its speed. What the figures say is in docs/correction.md.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

from benches._kept import keep_runs, kept_runs, spread
from benches.guards import commit, held_out
from benches.scripted.real import cores_used
from benches.scripted.run import Ran, finished_run
from spade_async.config.correction import RULES
from spade_async.config.run_folder import RunFolder
from spade_async.ledger import LedgerReader

STEPS = 40
SEEDS = (1, 2, 3)
AGES = (0, 4, 16)
RULE_NAMES = ("none", "tis_token", "decoupled_ppo")
SIZES: dict[str, object] = {
    "learner.lr": 4e-4,
    "designer.groups_per_step": 3,
    "agent.groups_per_step": 15,
    "checkpoint.every": 1000,
    "eval.instances_per_level": 128,
}
"""Over configs/nano.toml, in every run: 12 designs and 15 environments a step."""
QUICK: dict[str, object] = {
    "designer.groups_per_step": 1,
    "agent.groups_per_step": 6,
    "agent.seeds_per_environment": 2,
    "regret.leak_seeds": 0,
    "eval.instances_per_level": 4,
    "sandbox.workers": 16,
    "sandbox.spares": 2,
}
_AT_ONCE = 2
_LAST = 10
"""Newest steps over which regret, validity and ages are taken."""
_COLUMNS = (
    ("held_out_change", "held out", 3),
    ("regret", "regret", 3),
    ("validity", "validity", 2),
    ("agent_age", "age", 1),
    ("kl_generator", "KL", 4),
    ("kl_generator_max", "KL max", 3),
    ("ess", "ESS/N", 3),
    ("truncated_mass", "cut mass", 3),
    ("cpu_s", "CPU s", 0),
)


def run(quick: bool, steps: int = STEPS, keep: Path | None = None) -> dict[str, Any]:
    """Every rule, age and seed; `quick` makes one run of two tiny steps at age 1."""
    names, ages, seeds = (("tis_token",), (1,), (1,)) if quick else (RULE_NAMES, AGES, SEEDS)
    steps = 2 if quick else steps
    result: dict[str, Any] = {"steps": steps, "rules": names, "ages": ages, "runs": []}
    result["runs"] += kept_runs(keep, steps)
    done = {(r["rule"], r["age"], r["seed"]) for r in result["runs"]}
    lock = threading.Lock()

    def one(rule: str, age: int, seed: int) -> None:
        found = _one(rule, age, seed, steps, quick)
        with lock:
            result["runs"].append(found)
            keep_runs(keep, "correction_nano", result)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        todo = [(r, a, s) for s in seeds for a in ages for r in names if (r, a, s) not in done]
        for future in [pool.submit(one, *which) for which in todo]:
            future.result()
    result["runs"].sort(key=lambda r: (names.index(r["rule"]), r["age"], r["seed"]))
    return result


def table(result: dict[str, Any]) -> str:
    """One line per rule and age: means over its seeds, ± their standard deviation."""
    head = f"{'rule':<14}{'age':>4}{'seeds':>6}"
    lines = [head + "".join(f"{title:>17}" for _, title, _ in _COLUMNS) + "  alarms (runs)"]
    for rule in result["rules"]:
        for age in result["ages"]:
            runs = [r for r in result["runs"] if (r["rule"], r["age"]) == (rule, age)]
            if not runs:
                lines.append(f"{rule:<14}{age:>4}{0:>6}  not measured")
                continue
            cells = "".join(f"{spread(runs, key, digits):>17}" for key, _, digits in _COLUMNS)
            told = Counter(kind for r in runs for kind in r["alarms"])
            alarms = ", ".join(f"{kind} {n}" for kind, n in sorted(told.items())) or "none"
            lines.append(f"{rule:<14}{age:>4}{len(runs):>6}{cells}  {alarms}")
    lines.append(
        f"{result['steps']} steps from one warm start; held out: change of success over the run; "
        f"regret, validity, age, KL, ESS/N, cut mass: last {_LAST} steps"
    )
    return "\n".join(lines)


def failures(result: dict[str, Any]) -> list[str]:
    """Every run had the age it is named after, and none above it."""
    found = []
    for r in result["runs"]:
        where = f"{r['rule']}, age {r['age']}, seed {r['seed']}"
        if r["samples_over_bound"]:
            found.append(f"{where}: {r['samples_over_bound']} samples over the bound")
        expected = min(r["age"], r["steps"] - 1 - _LAST // 2)
        if r["steps"] > 2 * _LAST and r["agent_age"] < 0.8 * expected:
            found.append(f"{where}: the samples were {r['agent_age']:.1f} steps old")
        if r["held_out_change"] is None:
            found.append(f"{where}: held-out success is missing")
    return found


def _one(rule: str, age: int, seed: int, steps: int, quick: bool) -> dict[str, Any]:
    passes = RULES[rule].min_passes
    values: dict[str, object] = {
        "run.seed": seed,
        "train.steps": steps,
        "eval.every": steps,
        "learner.correction.rule": rule,
        "learner.passes": passes,
        "async.agent_bound": age,
        "async.designer_bound": age,
        "async.fill": "true",
        **SIZES,
        **(QUICK if quick else {}),
    }
    with finished_run("nano.toml", values, may_be_preferred=False) as ran:
        facts = {"rule": rule, "age": age, "seed": seed, "steps": steps, "passes": passes}
        return facts | _figures(ran)


def _figures(ran: Ran) -> dict[str, Any]:
    folder = RunFolder(ran.folder)
    with LedgerReader.open(folder.ledger) as ledger:
        steps, evals = ledger.steps(), ledger.evals()
        counters = ledger.get_state("counters") or {}
    lines = folder.alerts.read_text().splitlines() if folder.alerts.exists() else []
    told = [json.loads(line) for line in lines if line.strip()]

    def column(tag: str) -> list[float]:
        return [s.metrics[tag] for s in steps if tag in s.metrics]

    def late(tag: str) -> float | None:
        values = column(tag)[-_LAST:]
        return fmean(values) if values else None

    ordinals = [e.ordinal for e in evals]
    first, last = held_out(evals, min(ordinals)), held_out(evals, max(ordinals))
    return {
        "held_out_first": first,
        "held_out_last": last,
        "held_out_change": None if first is None or last is None else last - first,
        "regret": late("regret/mean"),
        "validity": late("designer/validity"),
        "agent_age": late("staleness/agent_mean"),
        "designer_age": late("staleness/designer_mean"),
        "kl_generator": late("learner/kl_generator"),
        "kl_generator_max": max(column("learner/kl_generator"), default=None),
        "kl_to_start": late("learner/kl_to_start"),
        "ess": late("learner/ess"),
        "truncated_mass": late("learner/truncated_mass"),
        "stale_gradient_share": late("learner/stale_gradient_share"),
        "samples_over_bound": counters.get("samples_over_bound", 0),
        "alarms": sorted({alert["kind"] for alert in told}),
        "wall_s": ran.wall_s,
        "cpu_s": cores_used(ran) * ran.wall_s,
        "load": ran.load,
        "commit": commit(),
        "unix_s": time.time(),
    }
