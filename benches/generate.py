"""Tokens per second: the built-in engine by itself, then beside vLLM and `transformers.generate`.

The built-in engine on one core, for a model of the nano's size: a random Llama (width 128, 4
layers, 4 heads of 32, vocabulary 150) is made here, so that the figures need no warm start.
"steady" decodes a fixed number of requests from short prompts;
"joining" keeps all slots busy with short answers, so that requests join and leave at nearly every
step; "swap" loads weights under 64 running requests. Each speed is given per second and per
CPU-second of the process: the two agree on an idle machine, and the second one holds on a busy one.

"engines" has all three on the same model and prompts, one thread each, repeats in turn
(`benches/engines/compared.py`); without vLLM a line says that it was left out.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from pathlib import Path
from typing import Any

from benches._scratch import scratch
from benches.engines.compared import compared, lines
from benches.engines.shape import NANO, save_model

PROMPT_TOKENS = 24
CONTEXT = 384


def run(quick: bool) -> dict[str, Any]:
    """Measure; `quick` decodes fewer tokens and repeats once."""
    return asyncio.run(_run(quick))


def table(result: dict[str, Any]) -> str:
    """The figures as text."""
    text = [f"{'path':>8} {'requests':>9} {'tokens/s':>9} {'tokens/CPU-s':>13}"]
    text += [
        f"{row['path']:>8} {row['batch']:>9} {row['tokens_per_s']:>9.0f} "
        f"{row['tokens_per_cpu_s']:>13.0f}"
        for row in result["steady"]
    ]
    joining, swap = result["joining"], result["swap"]
    text += [
        f"joining and leaving: {joining['requests_per_s']:.0f} requests/s "
        f"({joining['requests_per_cpu_s']:.0f} per CPU-s) of "
        f"{joining['prompt_tokens']} + {joining['new_tokens']:.1f} tokens, 64 slots",
        f"swap under {swap['active']} requests: pause {1e3 * swap['pause_s']:.1f} ms to recompute "
        f"{swap['recomputed_tokens']:.0f} tokens; load in all {1e3 * swap['load_s']:.1f} ms",
        f"KV cache {result['cache_bytes'] / 2**20:.1f} MiB, process at most "
        f"{result['peak_bytes'] / 2**20:.0f} MiB",
    ]
    return "\n".join([*text, *lines(result["engines"])])


async def _run(quick: bool) -> dict[str, Any]:
    from spade_async.config.schema import EngineConfig
    from spade_async.engine.builtin import BuiltinEngine

    new, repeats = (48, 1) if quick else (96, 3)
    with scratch() as folder:
        save_model(folder, NANO)
        config = EngineConfig(slots=64, threads=1)
        steady = []
        for path in ("general", "fast"):
            engine = await BuiltinEngine.create(folder, config, CONTEXT, general=path == "general")
            for batch in (1, 8, 32, 64):
                speeds = await _steady(engine, batch, new, repeats)
                steady.append({"path": path, "batch": batch, **speeds})
            if path == "general":
                await engine.close()
        joining = await _joining(engine, 256 if quick else 1024)
        swap = await _swap(engine, folder)
        cache_bytes = engine.stats()["cache_bytes"]
        await engine.close()
    return {
        "steady": steady,
        "joining": joining,
        "swap": swap,
        "cache_bytes": cache_bytes,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "engines": await compared(quick),
    }


def _prompt(i: int, tokens: int) -> list[int]:
    return [(i * 31 + j * 7) % 150 for j in range(tokens)]


async def _steady(engine: Any, batch: int, new: int, repeats: int) -> dict[str, float]:
    """Median speeds of `batch` requests that start together, prompts included."""
    from spade_async.engine.protocol import Sampling

    speeds, cpu_speeds = [], []
    for repeat in range(repeats + 1):
        start, cpu_start = time.perf_counter(), time.process_time()
        requests = (
            engine.generate(_prompt(i, PROMPT_TOKENS), Sampling(1.0, new, (), seed=i))
            for i in range(batch)
        )
        await asyncio.gather(*requests)
        if repeat:  # The first one warms up.
            speeds.append(batch * new / (time.perf_counter() - start))
            cpu_speeds.append(batch * new / (time.process_time() - cpu_start))
    return {
        "tokens_per_s": statistics.median(speeds),
        "tokens_per_cpu_s": statistics.median(cpu_speeds),
    }


async def _joining(engine: Any, count: int) -> dict[str, float]:
    from spade_async.engine.protocol import Sampling

    prompt_tokens = 40
    start, cpu_start = time.perf_counter(), time.process_time()
    made = await asyncio.gather(
        *(
            engine.generate(_prompt(i, prompt_tokens), Sampling(1.0, 2 + i % 7, (), seed=i))
            for i in range(count)
        )
    )
    return {
        "requests_per_s": count / (time.perf_counter() - start),
        "requests_per_cpu_s": count / (time.process_time() - cpu_start),
        "prompt_tokens": prompt_tokens,
        "new_tokens": statistics.fmean(len(one.token_ids) for one in made),
    }


async def _swap(engine: Any, folder: Path) -> dict[str, float]:
    from safetensors.torch import load_file

    from spade_async.engine.protocol import Sampling
    from spade_async.types import PolicyVersion
    from spade_async.weights.store import FileWeightStore

    version = PolicyVersion(0, 1)
    published = FileWeightStore(folder / "w").publish(
        version, load_file(folder / "model.safetensors")
    )
    requests = [
        asyncio.create_task(engine.generate(_prompt(i, 40), Sampling(1.0, 120, (), seed=i)))
        for i in range(64)
    ]
    done = engine.stats()["tokens"] + 64 * 40
    while engine.stats()["tokens"] < done:  # noqa: ASYNC110 - the engine has no event for this
        await asyncio.sleep(0.001)
    active, before = engine.stats()["active"], engine.stats()["recomputed_tokens"]
    report = await engine.load_weights(version, published.location, published.digest)
    recomputed = engine.stats()["recomputed_tokens"] - before
    await asyncio.gather(*requests)
    return {
        "active": active,
        "pause_s": report.pause_s,
        "load_s": report.load_s,
        "recomputed_tokens": recomputed,
        "publish_s": published.seconds,
    }
