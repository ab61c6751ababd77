"""What a weight push costs with vLLM: pushes of a whole set under running requests.

The publisher is a process of its own, as a learner is. Nothing of the set is read or checked inside
the pause: `outside_s` is what a load took beside its pause. A gap is the longest time in which one
running request got no token; tokens are looked for every 2 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from benches._scratch import scratch
from benches.engines.shape import M1, M135, M500, Shape, save_model
from benches.weights.fit import fit
from benches.weights.publisher import Publisher, publisher
from spade_async.engine.vllm.installed import look

SIZES: dict[str, tuple[Shape, int]] = {"1 M": (M1, 200), "135 M": (M135, 200), "500 M": (M500, 20)}
"""Name -> shape and number of pushes."""
QUICK = {"1 M": (M1, 5)}
RUNNING = 4
"""Requests that are decoded meanwhile; each push reads them again under the new weights."""
_PROMPT, _NEW, _CONTEXT = 40, 60, 128
_LOOK_S = 0.002
_PARTS = ("publish", "outside", "pause", "total", "gap")


async def pushes(quick: bool, memory: Path | None, copy_s: Any) -> dict[str, Any]:
    """Rows of all sizes, or why there are none.

    Args:
        quick: the smallest size, a few times.
        memory: where published sets lie; None is the temporary folder.
        copy_s: seconds of a memory copy, from its bytes; called for each size beside its pushes.
    """
    sizes = QUICK if quick else SIZES
    problem = look().problem
    if problem is not None:
        return {"rows": [], "left_out": f"vLLM, {', '.join(SIZES)} weights: {problem}"}
    rows = []
    for name, (shape, count) in sizes.items():
        with scratch() as folder:
            num_bytes = save_model(folder / "model", shape)
            with (
                scratch(memory) as store,
                # As few as can be: a set of the largest model has 2 GB.
                publisher(folder / "model", store, keep=2) as ours,
            ):
                times = await _pushes(folder / "model", shape, ours, count)
            rows.append(_row(name, num_bytes, copy_s(num_bytes), times))
    skipped = [name for name in SIZES if name not in sizes]
    return {"rows": rows, "left_out": f"vLLM, {', '.join(skipped)} weights" if skipped else None}


def lines(result: dict[str, Any]) -> list[str]:
    """The figures as text."""
    text = []
    for row in result["rows"]:
        parts = ", ".join(
            f"{part} {1e3 * row[f'{part}_s']:.1f} ms ({row[f'{part}_over_copy']:.1f} copies)"
            for part in _PARTS
        )
        text.append(
            f"vLLM, {row['model']}, {row['bytes'] / 1e6:.0f} MB, {row['pushes']} pushes: {parts}; "
            f"gap without a push {1e3 * row['calm_gap_s']:.1f} ms"
        )
        text += [
            f"  {part}: slope {1e6 * line['slope_s']:+.1f} +- {1e6 * line['standard_error_s']:.1f} "
            f"us per push ({'flat' if line['is_flat'] else 'not flat'})"
            for part, line in row["lines"].items()
        ]
    if result["left_out"] is not None:
        text.append(f"left out: {result['left_out']}")
    return text


async def _pushes(model: Path, shape: Shape, ours: Publisher, count: int) -> list[dict[str, float]]:
    from spade_async.config.schema import EngineConfig
    from spade_async.engine.vllm.engine import VllmEngine

    keys: dict[str, Any] = {"kind": "vllm", "slots": RUNNING, "threads": 1}
    config = EngineConfig(**keys, vllm={"dtype": "float32"})
    engine = await VllmEngine.create(model, config, _CONTEXT)
    try:
        async with _watched(engine, shape) as gaps:
            await _calm(engine, gaps)  # The first pushes wait for no warm-up.
            found = []
            for _ in range(count):
                calm_s = await _calm(engine, gaps)
                began_s = time.monotonic()
                version, published = await asyncio.to_thread(ours.publish)
                report = await engine.load_weights(version, published.location, published.digest)
                total_s = time.monotonic() - began_s
                # A gap that began under the push ends with a token after it.
                await _tokens(engine, 2 * RUNNING)
                found.append(
                    {
                        "publish_s": published.seconds,
                        "outside_s": report.load_s - report.pause_s,
                        "pause_s": report.pause_s,
                        "total_s": total_s,
                        "gap_s": gaps.longest_s,
                        "calm_gap_s": calm_s,
                    }
                )
            return found
    finally:
        await engine.close()


class Gaps:
    """The longest time since `begin` in which one request got no token."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._seen: dict[int, tuple[int, float]] = {}

    def begin(self) -> None:
        """Forget what was; a gap that runs now counts from its start."""
        self.longest_s = 0.0

    def look(self, tokens: dict[int, int], now_s: float) -> None:
        """Note how many tokens each running request has; a request's first one ends no gap."""
        for key, count in tokens.items():
            before, since_s = self._seen.get(key, (0, now_s))
            if count == before:
                self._seen.setdefault(key, (count, now_s))
                continue
            if before:
                self.longest_s = max(self.longest_s, now_s - since_s)
            self._seen[key] = (count, now_s)
        self._seen = {key: seen for key, seen in self._seen.items() if key in tokens}


@contextlib.asynccontextmanager
async def _watched(engine: Any, shape: Shape) -> AsyncIterator[Gaps]:
    """All slots busy, and watched; the requests are gone after the block."""
    gaps = Gaps()

    async def watch() -> None:
        while True:
            running = engine._places.running
            gaps.look({id(s): s.num_tokens for s in running}, time.monotonic())
            await asyncio.sleep(_LOOK_S)

    tasks = [asyncio.create_task(_keep_busy(engine, shape, i)) for i in range(RUNNING)]
    tasks.append(asyncio.create_task(watch()))
    try:
        yield gaps
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_busy(engine: Any, shape: Shape, number: int) -> None:
    from spade_async.engine.protocol import Sampling

    turn = 0
    while True:
        prompt = [(number * 31 + turn * 17 + j * 7) % shape.vocabulary for j in range(_PROMPT)]
        await engine.generate(prompt, Sampling(1.0, _NEW, (), seed=1000 * number + turn))
        turn += 1


async def _calm(engine: Any, gaps: Gaps) -> float:
    """The longest gap over a few tokens without a push; begins a new one."""
    gaps.begin()
    await _tokens(engine, 4 * RUNNING)
    longest_s = gaps.longest_s
    gaps.begin()
    return longest_s


async def _tokens(engine: Any, more: int) -> None:
    """Wait for so many further tokens."""
    goal = engine.stats()["tokens"] + more
    async with asyncio.timeout(600):
        while engine.stats()["tokens"] < goal:  # noqa: ASYNC110 - the engine has no event for this
            await asyncio.sleep(_LOOK_S)


def _row(name: str, num_bytes: int, copy_s: float, times: list[dict[str, float]]) -> dict[str, Any]:
    """Medians, spread, shares of a copy, and a line through each part in the order of pushes."""
    row: dict[str, Any] = {
        "model": name, "bytes": num_bytes, "pushes": len(times), "copy_s": copy_s,
        "running": RUNNING,
    }  # fmt: skip
    for key in times[0]:
        values = [t[key] for t in times]
        row[key] = statistics.median(values)
        row[f"{key}_spread"] = [min(values), max(values)]
    row |= {f"{part}_over_copy": row[f"{part}_s"] / copy_s for part in _PARTS}
    row["lines"] = {}
    for part in ("publish", "outside", "pause", "total"):
        line = fit([t[f"{part}_s"] for t in times])
        row["lines"][part] = {
            "slope_s": line.slope,
            "standard_error_s": line.standard_error,
            "is_flat": line.is_flat,
        }
    return row
