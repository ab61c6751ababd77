"""Latency and throughput of the jail: acquire, load, step, whole episodes, CPU per episode."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

from spade_async.sandbox import Pool, SandboxPolicy, SyncPool, SyncSession

SOURCE = """
class AddEnv:
    def reset(self, seed=None):
        self.numbers = [random.randint(1, 9) for _ in range(5)]
        return f"add {self.numbers}", {}
    def step(self, action):
        try:
            value = int(action)
        except ValueError:
            return "a number, please", 0.0, False, False, {}
        return f"you said {value}", float(value == sum(self.numbers)), value >= 0, False, {}
"""


def run(quick: bool) -> dict[str, Any]:
    """Measure; every row says its unit and its number of samples."""
    num = 60 if quick else 600
    rows: list[dict[str, Any]] = []
    policy = SandboxPolicy(num_workers=4, spares=4, wall_s_per_call=30, load_wall_s=30)
    with SyncPool(policy) as pool:
        loads, resets = [], []
        hot: list[float] = []
        for seed in range(num):
            time.sleep(0.002)  # let the spares refill: this row is not about throughput
            begun = time.perf_counter()
            with pool.session(SOURCE, seed) as session:
                loads.append(time.perf_counter() - begun)
                session.reset()
                resets.append(time.perf_counter() - begun)
                if seed == num - 1:
                    hot = _times(num * 10, lambda s=session: _step(s))
        rows.append(_row("acquire a spare and load a source", loads))
        rows.append(_row("the same, to the first observation", resets))
        rows.append(_row("step, round trip, hot, synchronous", hot))
    per_call = asyncio.run(_asyncio_steps(num * 5))
    rows.append(_row("step, round trip, hot, asyncio", per_call))
    episodes = asyncio.run(_episodes(num))
    return {
        "machine": {"python": platform.python_version(), "kernel": platform.release(),
                    "cpus": os.cpu_count(), "load": round(os.getloadavg()[0], 2)},
        "rows": rows,
        "episodes": episodes,
    }  # fmt: skip


def _step(session: SyncSession) -> None:
    assert session.step("-1").ok


def _times(count: int, call: Callable[[], None]) -> list[float]:
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return times


async def _asyncio_steps(count: int) -> list[float]:
    times = []
    async with Pool(SandboxPolicy(num_workers=1, spares=1)) as pool, pool.session(SOURCE, 0) as s:
        await s.reset()
        for _ in range(count):
            begun = time.perf_counter()
            await s.step("-1")
            times.append(time.perf_counter() - begun)
    return times


async def _episodes(count: int) -> dict[str, Any]:
    """One-turn episodes, each in its own fresh worker, several at once; CPU of all processes."""
    num_at_once = 8
    before = _cpu_s()
    async with Pool(SandboxPolicy(num_workers=num_at_once, wall_s_per_call=30)) as pool:
        gate = asyncio.Semaphore(num_at_once)

        async def play(seed: int) -> None:
            async with gate, pool.session(SOURCE, seed) as session:
                first = await session.reset()
                numbers = first.observation.removeprefix("add [").removesuffix("]")
                reply = await session.step(str(sum(map(int, numbers.split(", ")))))
                assert reply.reward == 1.0, reply

        begun = time.perf_counter()
        await asyncio.gather(*(play(seed) for seed in range(count)))
        seconds = time.perf_counter() - begun
    return {
        "num": count,
        "at_once": num_at_once,
        "episodes_per_s": count / seconds,
        "cpu_ms_per_episode": (_cpu_s() - before) / count * 1e3,
    }


def _cpu_s() -> float:
    """CPU seconds of this process and of all ended children, the whole jail among them."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def _row(name: str, seconds: list[float]) -> dict[str, Any]:
    hundred = statistics.quantiles(seconds, n=100)
    return {
        "name": name,
        "unit": "us",
        "median": statistics.median(seconds) * 1e6,
        "p10": hundred[9] * 1e6,
        "p99": hundred[98] * 1e6,
        "n": len(seconds),
    }


def table(result: dict[str, Any]) -> str:
    """The result as text, one row per measurement."""
    lines = [f"{'what':<40}{'median us':>11}{'p10':>9}{'p99':>11}{'n':>7}"]
    lines += [
        f"{row['name']:<40}{row['median']:>11.1f}{row['p10']:>9.1f}{row['p99']:>11.1f}{row['n']:>7}"
        for row in result["rows"]
    ]
    episodes = result["episodes"]
    lines.append(
        f"{episodes['episodes_per_s']:.0f} one-turn episodes/s with {episodes['at_once']} at once, "
        f"{episodes['cpu_ms_per_episode']:.2f} ms CPU each "
        f"(n={episodes['num']}, pool start included)"
    )
    return "\n".join(lines)
