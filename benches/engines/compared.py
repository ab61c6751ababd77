"""Engines beside each other: one model, one set of prompts, repeats in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from benches._scratch import scratch
from benches.engines.contestants import Contestant, Request, contestants, left_out
from benches.engines.cpu_time import cpu_s
from benches.engines.shape import M135, NANO, Shape, save_model

SHAPES = {"nano": NANO, "135 M": M135}
QUICK = ("nano",)
BATCHES = (1, 8, 32, 64)
JOINING = 160
"""Requests of the case in which they join and leave: of 4 to 60 new tokens, through 64 slots."""
PROMPT_TOKENS = 24


async def compared(quick: bool) -> dict[str, Any]:
    """Rows of engine, model and case; what could not take part, and why."""
    rows: list[dict[str, Any]] = []
    for name in QUICK if quick else SHAPES:
        with scratch() as folder:
            save_model(folder, SHAPES[name])
            async with contestants(folder) as engines:
                rows += await _model(name, SHAPES[name], engines, quick)
    return {"rows": rows, "left_out": left_out()}


def lines(result: dict[str, Any]) -> list[str]:
    """The figures as text."""
    text = [
        f"{'model':>6} {'case':>8} {'engine':>13} {'tokens/s':>9} {'(least - most)':>17} "
        f"{'tokens/CPU-s':>13}"
    ]
    for row in result["rows"]:
        low, high = row["tokens_per_s_spread"]
        text.append(
            f"{row['model']:>6} {row['case']:>8} {row['engine']:>13} {row['tokens_per_s']:>9.0f} "
            f"{f'({low:.0f} - {high:.0f})':>17} {row['tokens_per_cpu_s']:>13.0f}"
        )
    text += [f"left out: {name}: {why}" for name, why in result["left_out"].items()]
    return text


def cases(vocabulary: int, new: int, joining: int) -> dict[str, list[Request]]:
    """Name -> requests that are asked for together."""

    def prompt(i: int) -> list[int]:
        return [(i * 31 + j * 7) % vocabulary for j in range(PROMPT_TOKENS)]

    found = {str(batch): [(prompt(i), new) for i in range(batch)] for batch in BATCHES}
    found["joining"] = [(prompt(i), 4 + i * 13 % 57) for i in range(joining)]
    return found


async def _model(
    name: str, shape: Shape, engines: Sequence[Contestant], quick: bool
) -> list[dict[str, Any]]:
    new, repeats, joining = (8, 1, 80) if quick else (64, 3, JOINING)
    speeds: dict[tuple[str, str], list[tuple[float, float]]] = {}
    asked = cases(shape.vocabulary, new, joining)
    for engine in engines:  # The first requests warm up.
        await engine.generate([(prompt, min(4, n)) for prompt, n in asked["64"]])
    for _ in range(repeats):
        for case, requests in asked.items():
            for engine in engines:
                found = speeds.setdefault((case, engine.name), [])
                found.append(await _speed(engine, requests))
    return [
        {
            "model": name,
            "case": case,
            "engine": engine,
            "requests": len(asked[case]),
            "prompt_tokens": PROMPT_TOKENS,
            "new_tokens": sum(n for _, n in asked[case]),
            "repeats": repeats,
            "tokens_per_s": statistics.median(s for s, _ in found),
            "tokens_per_s_spread": [min(s for s, _ in found), max(s for s, _ in found)],
            "tokens_per_cpu_s": statistics.median(c for _, c in found),
        }
        for (case, engine), found in speeds.items()
    ]


async def _speed(engine: Contestant, requests: Sequence[Request]) -> tuple[float, float]:
    """New tokens per second and per CPU-second, prompts included."""
    tokens = sum(new for _, new in requests)
    start_s, cpu_start_s = time.perf_counter(), cpu_s(engine.pids)
    await engine.generate(requests)
    took_s, cpu_took_s = time.perf_counter() - start_s, cpu_s(engine.pids) - cpu_start_s
    return tokens / took_s, tokens / max(cpu_took_s, 1e-3)
