"""Which guard prevents what: nano self-play with all guards on, all off, and each one off alone.

Real training of the nano model, with a learning rate three times that of configs/nano.toml and with
normalised advantages, so that self-play fails within a minute; only the guards differ. Seeds go
outermost: a bench that is stopped early has whole rounds. With ``--keep FILE`` every run is written
there as it ends, and one that is there is not made again. The figures of a run are of its newest
designs and steps; what they mean is in docs/guards.md.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benches._kept import keep_runs, kept_runs, spread
from benches.scripted.run import ROOT, Ran, finished_run
from spade_async.config.run_folder import RunFolder
from spade_async.ledger import LedgerReader
from spade_async.ledger.rows import EvalRow

STEPS = 60
SEEDS = (1, 2, 3)
ON: dict[str, tuple[str, object]] = {
    "leak": ("regret.leak_discount", "true"),
    "novelty": ("designer.novelty_penalty", 0.2),
    "quota": ("designer.plays_per_skeleton", 3),
    "replay": ("agent.pool_share", 0.2),
    "kl": ("learner.kl_to_start", 0.02),
}
"""The values of configs/nano.toml; nano_unguarded.toml has each of them off."""
SETTINGS: dict[str, tuple[str, ...]] = {
    "all off": (),
    "all on": tuple(ON),
    **{f"no {name}": tuple(other for other in ON if other != name) for name in ON},
}
"""By name, the guards that are on."""
SIZES: dict[str, object] = {
    "learner.lr": 3e-4,
    "designer.group_size": 4,
    "designer.groups_per_step": 5,
    "agent.groups_per_step": 20,
}
"""Of every run: at the higher rate of nano_unguarded.toml no guard holds."""
QUICK: dict[str, object] = {
    "agent.groups_per_step": 8,
    "designer.groups_per_step": 1,
    "guards.window": 8,
    "eval.instances_per_level": 12,
    "sandbox.workers": 16,
    "sandbox.spares": 2,
}
_WINDOW = 64
"""Newest valid designs that "families" counts."""
_LAST = 5
"""Newest steps over which regret, reward and validity are taken."""
_COLUMNS = (
    ("families", "families", 1),
    ("effective_skeletons", "skeletons", 1),
    ("largest_family_share", "largest", 2),
    ("leak_share", "leak", 2),
    ("held_out_first", "held out", 2),
    ("held_out_last", "-> last", 2),
    ("validity", "validity", 2),
    ("regret", "regret", 2),
    ("reward", "reward", 2),
    ("kl_to_start", "kl", 3),
)


def run(quick: bool, steps: int = STEPS, keep: Path | None = None) -> dict[str, Any]:
    """All settings and seeds; `quick` takes one of each and two tiny steps."""
    names = ["all off"] if quick else list(SETTINGS)
    seeds = SEEDS[:1] if quick else SEEDS
    result: dict[str, Any] = {"steps": 2 if quick else steps, "settings": names, "runs": []}
    result["runs"] += kept_runs(keep, result["steps"])
    done = {(r["setting"], r["seed"]) for r in result["runs"]}
    for seed in seeds:
        for name in names:
            if (name, seed) in done:
                continue
            result["runs"].append(_one(name, seed, result["steps"], quick))
            keep_runs(keep, "guards", result)
    return result


def table(result: dict[str, Any]) -> str:
    """One line per setting: means over its seeds, ± their standard deviation."""
    head = f"{'guards':<11}{'seeds':>5}" + "".join(f"{title:>17}" for _, title, _ in _COLUMNS)
    lines = [head + "  alarms raised (runs)"]
    for name in result["settings"]:
        runs = [r for r in result["runs"] if r["setting"] == name]
        if not runs:
            lines.append(f"{name:<11}{0:>5}  not measured")
            continue
        cells = "".join(f"{spread(runs, key, digits):>17}" for key, _, digits in _COLUMNS)
        told = Counter(alarm["kind"] for r in runs for alarm in _first_of_kind(r["alarms"]))
        alarms = ", ".join(f"{kind} {n}" for kind, n in sorted(told.items())) or "none"
        lines.append(f"{name:<11}{len(runs):>5}{cells}  {alarms}")
    return "\n".join(lines)


def failures(result: dict[str, Any]) -> list[str]:
    """Every run did its steps and measured leaks, paid or not."""
    return [
        f"{r['setting']}, seed {r['seed']}: {key} is missing"
        for r in result["runs"]
        for key in ("leak_share", "effective_skeletons", "held_out_last")
        if r[key] is None
    ]


def _first_of_kind(alarms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({alarm["kind"]: alarm for alarm in alarms}.values())


def _one(name: str, seed: int, steps: int, quick: bool) -> dict[str, Any]:
    values: dict[str, object] = {"run.seed": seed, "train.steps": steps}
    values["eval.every"] = max(1, steps // 2)
    values |= QUICK if quick else SIZES
    values |= dict(ON[guard] for guard in SETTINGS[name])
    with finished_run("nano_unguarded.toml", values, may_be_preferred=False) as ran:
        return {"setting": name, "seed": seed, "steps": steps, **_figures(ran)}


def _figures(ran: Ran) -> dict[str, Any]:
    with LedgerReader.open(RunFolder(ran.folder).ledger) as ledger:
        steps = ledger.steps()
        evals = ledger.evals()
        alarms = (ledger.get_state("guards") or {}).get("history", [])
        rows = ledger.query(
            "SELECT e.labels_json FROM designs d JOIN environments e USING (environment_id)"
            " JOIN samples s USING (sample_id) ORDER BY s.number DESC LIMIT ?",
            (_WINDOW,),
        )
    families = {dict(json.loads(row[0])).get("family") for row in rows} - {None}

    def newest(tag: str) -> float | None:
        return next((s.metrics[tag] for s in reversed(steps) if tag in s.metrics), None)

    def late(tag: str) -> float | None:
        values = [s.metrics[tag] for s in steps if tag in s.metrics][-_LAST:]
        return fmean(values) if values else None

    return {
        "families": len(families),
        "effective_skeletons": newest("guards/effective_skeletons"),
        "largest_family_share": newest("guards/largest_family_share"),
        "leak_share": newest("guards/leak_share"),
        "held_out_first": held_out(evals, min((e.ordinal for e in evals), default=-1)),
        "held_out_last": held_out(evals, max((e.ordinal for e in evals), default=-1)),
        "validity": late("designer/validity"),
        "regret": late("regret/mean"),
        "reward": late("designer/reward_mean"),
        "kl_to_start": newest("learner/kl_to_start"),
        "alarms": alarms,
        "wall_s": ran.wall_s,
        "load": ran.load,
        "commit": commit(),
        "unix_s": time.time(),
    }


def held_out(evals: Sequence[EvalRow], ordinal: int) -> float | None:
    """Success over all held-out instances at one version; None when it was not scored."""
    scored = [e for e in evals if e.ordinal == ordinal and e.mean is not None]
    total = sum(e.num_instances for e in scored)
    return sum(e.num_instances * (e.mean or 0.0) for e in scored) / total if total else None


def commit() -> str:
    """Of this checkout, with a mark when it has changes."""
    argv = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
