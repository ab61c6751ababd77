"""What a new weight set costs: pause, total, and the longest gap between two tokens of a request.

A second process publishes (writes, hashes, renames), the built-in engine reads, checks and swaps
while requests run. Each figure also stands over a copy of as many bytes in memory: the least that
moving them can cost. "recompute" makes the KV of the running requests anew, "keep" does not.
`repeated` publishes 200 times and fits a line; `nano` compares the pause with the step of a real
run. Meaning of every figure: docs/bench_overlap.md.

"vllm" has the same of vLLM with models of 1, 135 and 500 million weights, 200 pushes of the first
two and 20 of the third (`benches/weights/vllm_pushes.py`); without vLLM a line says so.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from pathlib import Path
from typing import Any

from benches._scratch import scratch
from benches.scripted.run import finished_run
from benches.weights.fit import fit
from benches.weights.model import save_model
from benches.weights.publisher import Publisher, publisher
from benches.weights.vllm_pushes import lines as vllm_lines
from benches.weights.vllm_pushes import pushes
from spade_async.config.run_folder import RunFolder

AT_TOP = True
SIZES = {"nano (4 x 128)": (128, 4), "6 x 256": (256, 6), "8 x 512": (512, 8)}
"""Layers and width."""
QUICK = ("nano (4 x 128)",)
REPEATED = 200
RUNNING = 16
"""Requests that are decoded while weights are swapped."""
PAUSE_GOAL = 0.02
"""Share of a step that a nano pause may take."""
_CONTEXT = 384
_PROMPT, _NEW = 40, 60
"""Tokens of a request: those of a nano design, about."""


def run(quick: bool) -> dict[str, Any]:
    """All sizes; `quick` publishes the smallest a few times and leaves the real run out."""
    return asyncio.run(_run(quick))


def table(result: dict[str, Any]) -> str:
    """One line per size and kind of swap."""
    lines = [
        f"{'model':>16} {'swap':>9} {'MB':>7} {'copy ms':>8} {'publish':>8} {'load':>8} "
        f"{'pause':>8} {'gap':>8} {'no swap':>8}   over the copy: {'total':>6} {'pause':>6} "
        f"{'gap':>6}"
    ]
    for row in result["sizes"]:
        shown = [1e3 * row[f"{name}_s"] for name in ("copy", "publish", "load", "pause", "gap")]
        lines.append(
            f"{row['model']:>16} {row['swap']:>9} {row['bytes'] / 1e6:>7.1f} "
            + " ".join(f"{value:>8.2f}" for value in [*shown, 1e3 * row["gap_without_s"]])
            + f"   {'':>14} {row['total_over_copy']:>6.1f} {row['pause_over_copy']:>6.1f} "
            f"{row['gap_over_copy']:>6.1f}"
        )
    for swap, name, line in (
        (swap, name, line)
        for swap, found in result["repeated"].items()
        for name, line in found["lines"].items()
    ):
        lines.append(
            f"{result['repeated'][swap]['count']} publishes, {swap}, {name}: "
            f"{1e3 * line['mean_s']:.2f} ms, "
            f"slope {1e6 * line['slope_s']:+.2f} +- {1e6 * line['standard_error_s']:.2f} us "
            f"per publish ({_trend(line)})"
        )
    if result["nano"] is not None:
        nano = result["nano"]
        lines.append(
            f"nano run: pause {1e3 * nano['pause_s']:.2f} ms of a step of {nano['step_s']:.2f} s: "
            f"{nano['pause_share']:.2%} (goal {PAUSE_GOAL:.0%}); from publishing to loaded "
            f"{1e3 * nano['loaded_s']:.0f} ms"
        )
    return "\n".join([*lines, *vllm_lines(result["vllm"])])


def _trend(line: dict[str, Any]) -> str:
    if line["is_flat"]:
        return "flat"
    return "RISES" if line["slope_s"] > 0 else "falls"


async def _run(quick: bool) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    repeated: dict[str, dict[str, Any]] = {}
    for name in QUICK if quick else SIZES:
        width, layers = SIZES[name]
        with scratch() as folder:
            model = folder / "model"
            num_bytes = save_model(model, width=width, layers=layers)
            copy_s = _copy_s(num_bytes)
            # Where a run keeps its weights; a folder of our own, gone with the block.
            with (
                scratch(_memory()) as store,
                publisher(model, store) as ours,
            ):
                for swap in ("recompute", "keep"):
                    count = 3 if quick else 9
                    times = await _swaps(model, ours, swap, count)
                    rows.append(_row(name, swap, num_bytes, copy_s, times))
                if name == QUICK[0]:
                    count = 12 if quick else REPEATED
                    for swap in ("keep", "recompute"):
                        repeated[swap] = _repeated(await _swaps(model, ours, swap, count))
    vllm = await pushes(quick, _memory(), _copy_s)
    return {
        "sizes": rows,
        "repeated": repeated,
        "nano": None if quick else _nano(),
        "vllm": vllm,
    }


def _memory() -> Path | None:
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else None


def _copy_s(num_bytes: int) -> float:
    """Median seconds of copying so many bytes from one place in memory to another."""
    import numpy as np

    source, target = np.ones(num_bytes, np.uint8), np.zeros(num_bytes, np.uint8)
    times = []
    for _ in range(15):
        began_s = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - began_s)
    return statistics.median(times)


async def _swaps(model: Path, ours: Publisher, swap: str, count: int) -> list[dict[str, float]]:
    """Times of so many publishes under running requests."""
    from spade_async.config.schema import EngineConfig
    from spade_async.engine.builtin import BuiltinEngine

    config = EngineConfig(slots=RUNNING, threads=1, on_swap=swap)
    engine = await BuiltinEngine.create(model, config, _CONTEXT)
    steps: list[float] = []
    # The engine has no event per token: note when each of its decode steps ends, in its own thread.
    decode = engine._decoder.step

    def step() -> Any:
        done = decode()
        steps.append(time.monotonic())
        return done

    engine._decoder.step = step
    found = []
    requests = [asyncio.create_task(_keep_busy(engine, i)) for i in range(RUNNING)]
    await asyncio.sleep(0.5)
    for _ in range(count):
        calm_s, calm_from = time.monotonic(), len(steps)
        await asyncio.sleep(0.1)
        calm_s = _longest_gap(steps, calm_from, calm_s)
        began_s, first = time.monotonic(), len(steps)
        version, published = await asyncio.to_thread(ours.publish)
        report = await engine.load_weights(version, published.location, published.digest)
        total_s = time.monotonic() - began_s
        await asyncio.sleep(0.02)
        found.append(
            {
                "publish_s": published.seconds,
                "load_s": report.load_s,
                "pause_s": report.pause_s,
                "total_s": total_s,
                "gap_s": _longest_gap(steps, first, began_s),
                "gap_without_s": calm_s,
            }
        )
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)
    await engine.close()
    return found


async def _keep_busy(engine: Any, number: int) -> None:
    """One slot that always has a request."""
    from spade_async.engine.protocol import Sampling

    turn = 0
    while True:
        prompt = [(number * 31 + turn * 17 + j * 7) % 150 for j in range(_PROMPT)]
        await engine.generate(prompt, Sampling(1.0, _NEW, (), seed=1000 * number + turn))
        turn += 1


def _longest_gap(steps: list[float], first: int, began_s: float) -> float:
    """Longest time between two decode steps since then; every running request waits for it."""
    moments = [began_s if first == 0 else steps[first - 1], *steps[first:]]
    return max((b - a for a, b in itertools.pairwise(moments)), default=0.0)


def _row(
    name: str, swap: str, num_bytes: int, copy_s: float, times: list[dict[str, float]]
) -> dict[str, Any]:
    """Medians, the spread of each, and what they are over a copy."""
    middle = {key: statistics.median(t[key] for t in times) for key in times[0]}
    spread = {
        f"{key}_spread": [min(t[key] for t in times), max(t[key] for t in times)]
        for key in times[0]
    }
    over = {f"{key}_over_copy": middle[f"{key}_s"] / copy_s for key in ("total", "pause", "gap")}
    facts = {"model": name, "swap": swap, "bytes": num_bytes, "repeats": len(times)}
    return facts | {"copy_s": copy_s} | middle | spread | over


def _repeated(times: list[dict[str, float]]) -> dict[str, Any]:
    """Lines through pause, load and publication, in the order they happened."""
    lines = {}
    for name in ("publish", "load", "pause", "total"):
        values = [t[f"{name}_s"] for t in times]
        line = fit(values)
        lines[name] = {
            "mean_s": statistics.fmean(values),
            "slope_s": line.slope,
            "standard_error_s": line.standard_error,
            "is_flat": line.is_flat,
        }
    return {"count": len(times), "lines": lines}


def _nano(steps: int = 20, warm_up: int = 6) -> dict[str, float]:
    """Pause of a swap against the step, in a real run of the nano model."""
    from spade_async.ledger import LedgerReader

    values: dict[str, object] = {
        "eval.every": 1_000_000,
        "eval.instances_per_level": 1,
        "train.steps": steps,
    }
    with (
        finished_run("nano.toml", values) as ran,
        LedgerReader.open(RunFolder(ran.folder).ledger) as ledger,
    ):
        rows = [row.metrics for row in ledger.steps() if row.step > warm_up]
        times = [t for t in ledger.step_times() if t.ordinal > warm_up]
        pauses = [m["generator/swap_pause_s"] for m in rows if "generator/swap_pause_s" in m]
        pause_s = statistics.median(pauses)
        step_s = statistics.median(m["learner/step_s"] for m in rows)
        loaded = [
            t.loaded_unix_s - t.published_unix_s
            for t in times
            if t.loaded_unix_s is not None and t.published_unix_s is not None
        ]
        return {
            "pause_s": pause_s,
            "longest_pause_s": max(pauses),
            "step_s": step_s,
            "pause_share": pause_s / step_s,
            "loaded_s": statistics.median(loaded),
            "steps": float(len(rows)),
            "load": ran.load,
        }
