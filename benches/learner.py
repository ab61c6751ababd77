"""Trained tokens per second of the learner, against TRL's GRPOTrainer, and where the time goes.

Both train the same model in float32 with AdamW on the same replies of fixed log-normal lengths,
each run in a process of its own, at the best size of its micro-batches from a sweep, in turns.
Without TRL (`python -m benches.grpo.install`), and with --quick, our side runs alone. Meaning of
every figure: docs/learner.md.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benches._scratch import scratch
from benches.grpo import install, workload

REPEATS = 5
THREADS = 1
OURS = (1024, 2048, 4096, 8192, 16384)
"""learner.micro_batch_tokens of the sweep."""
THEIRS = (1, 2, 4, 8, 16, 32)
"""per_device_train_batch_size of the sweep, sequences; gradients are accumulated over the 64."""
GOAL = 1.5
"""Our trained tokens per second over theirs."""
LOSS = 1e-4
"""Largest difference of the two losses."""


def run(quick: bool) -> dict[str, Any]:
    """A sweep of one measured step each, then repeats in turns; under an hour on a quiet core."""
    size = workload.QUICK if quick else workload.FULL
    trl = None if quick else install.python()
    with scratch() as folder:
        model = folder / "model"
        workload.save_model(model, size)
        sides = {"ours": Path(sys.executable)} | ({"trl": trl} if trl else {})
        sizes = {"ours": (512,) if quick else OURS, "trl": THEIRS}
        sweep: dict[str, dict[str, Any]] = {}
        for side, python in sides.items():
            sweep[side] = {
                str(number): _summary([_worker(side, python, model, quick, number, 1)], size)
                for number in sizes[side]
            }
        best = {side: max(rows, key=lambda n: rows[n]["tokens_per_s"]) for side, rows in
                sweep.items()}  # fmt: skip
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for _ in range(1 if quick else REPEATS):
            for side, python in sides.items():
                runs[side].append(_worker(side, python, model, quick, int(best[side]), size.steps))
    return {
        "size": workload.plain(size),
        "trained_tokens": workload.trained_tokens(size),
        "threads": THREADS,
        "sweep": sweep,
        "best": best,
        "sides": {side: _summary(found, size) for side, found in runs.items()},
        "physical": _physical(runs["ours"], size),
        "alone": None if trl else ("--quick" if quick else "TRL is not installed"),
    }


def _worker(
    side: str, python: Path, model: Path, quick: bool, number: int, steps: int
) -> dict[str, Any]:
    module = {"ours": "benches.grpo.our_side", "trl": "benches.grpo.trl_side"}[side]
    variables = os.environ | {
        "OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS), "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(install.ROOT), "TRL_EXPERIMENTAL_SILENCE": "1",
    }  # fmt: skip
    answer = subprocess.run(
        [python, "-m", module, model, "quick" if quick else "full", str(number), str(THREADS),
         str(steps)],
        cwd=install.ROOT, env=variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if answer.returncode != 0:
        raise RuntimeError(f"{side} at {number} ended with {answer.returncode}: {answer.stderr}")
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def _step_seconds(run: dict[str, Any]) -> float:
    return statistics.median(step["seconds"] for step in run["steps"][1:])


def _summary(runs: list[dict[str, Any]], size: workload.Size) -> dict[str, Any]:
    """Medians over runs of the median step; the first step of a run is left out, but its loss."""
    seconds = [_step_seconds(run) for run in runs]
    first = runs[0]["steps"][0]
    return {
        "seconds": statistics.median(seconds),
        "all_seconds": seconds,
        "tokens_per_s": workload.trained_tokens(size) / statistics.median(seconds),
        "peak_bytes": max(run["peak_bytes"] for run in runs),
        "step_bytes": max(run["peak_bytes"] - run["loaded_bytes"] for run in runs),
        "loss": first["loss"],
        "grad_norm": first["grad_norm"],
        "versions": runs[0]["versions"],
    }


def _physical(runs: list[dict[str, Any]], size: workload.Size) -> dict[str, Any]:
    """Useful FLOP/s over those of a product in the same process, and shares of a profiled step."""
    flops, shares = workload.model_flops(size), [run["shares"] for run in runs]
    ratios = [flops / _step_seconds(run) / run["matmul_flops_per_s"] for run in runs]
    return {
        "flops": flops,
        "matmul_flops_per_s": statistics.median(run["matmul_flops_per_s"] for run in runs),
        "over_matmul": statistics.median(ratios),
        "padding_share": runs[0]["steps"][0]["padding_share"],
        "micro_batches": runs[0]["steps"][0]["micro_batches"],
        "shares": {kind: statistics.median(s[kind] for s in shares) for kind in shares[0]},
    }


def table(result: dict[str, Any]) -> str:
    """The sweep, the two sides, the physical view."""
    lines = [f"{result['trained_tokens']} trained tokens a step, {result['threads']} thread(s)"]
    for side, rows in result["sweep"].items():
        unit = "micro_batch_tokens" if side == "ours" else "sequences"
        cells = ", ".join(f"{n}: {row['tokens_per_s']:.0f}" for n, row in rows.items())
        lines.append(f"{side} sweep of {unit}, tokens/s: {cells}")
    lines.append(f"{'side':>6} {'at':>6} {'tokens/s':>9} {'s/step':>8} {'peak MB':>8} "
                 f"{'of steps':>9} {'loss':>10} {'|g|':>8}")  # fmt: skip
    for side, row in result["sides"].items():
        lines.append(
            f"{side:>6} {result['best'][side]:>6} {row['tokens_per_s']:>9.0f} "
            f"{row['seconds']:>8.3f} {row['peak_bytes'] / 1e6:>8.0f} "
            f"{row['step_bytes'] / 1e6:>9.0f} {row['loss']:>10.6f} {row['grad_norm']:>8.4f}"
        )
    if result["alone"]:
        lines.append(f"our side alone ({result['alone']}): nothing is said of TRL")
    else:
        lines.append(f"ours over TRL: {_ratio(result):.2f}")
    physical = result["physical"]
    lines.append(
        f"useful FLOP/s over a product's: {physical['over_matmul']:.2f} "
        f"({physical['matmul_flops_per_s'] / 1e9:.1f} GFLOP/s); padding "
        f"{physical['padding_share']:.3f} in {physical['micro_batches']:.0f} micro-batches"
    )
    cells = ", ".join(f"{kind} {share:.1%}" for kind, share in physical["shares"].items())
    lines.append(f"time of a profiled step: {cells}")
    return "\n".join(lines)


def _ratio(result: dict[str, Any]) -> float:
    sides = result["sides"]
    return float(sides["ours"]["tokens_per_s"] / sides["trl"]["tokens_per_s"])


def failures(result: dict[str, Any]) -> list[str]:
    """What does not hold; nothing of TRL when it did not run."""
    if result["alone"]:
        return []
    found = []
    ours, trl = result["sides"]["ours"], result["sides"]["trl"]
    if ours["versions"] != trl["versions"]:
        found.append(f"torch or transformers differ: {ours['versions']} and {trl['versions']}")
    if abs(ours["loss"] - trl["loss"]) > LOSS:
        found.append(f"the losses differ: {ours['loss']} and {trl['loss']}")
    if abs(ours["grad_norm"] / trl["grad_norm"] - 1.0) > 1e-3:
        found.append(f"the gradients' norms differ: {ours['grad_norm']} and {trl['grad_norm']}")
    if _ratio(result) < GOAL:
        found.append(f"{_ratio(result):.2f} x TRL's tokens/s, the goal is {GOAL}")
    if ours["peak_bytes"] > trl["peak_bytes"]:
        found.append(f"peak memory {ours['peak_bytes']} is above TRL's {trl['peak_bytes']}")
    return found
