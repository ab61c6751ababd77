"""Whole episodes, create to reap, sustained: how many one core does, with the refill counted."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from benches.ladder.cpu import Pinned
from benches.ladder.native import SEED, built, played, policy
from benches.ladder.plan import Plan
from benches.ladder.process import Tree, children
from benches.ladder.workload import moves
from spade_async.sandbox import SyncPool, SyncSession

NUM_STEPS = 25
VARIANTS = ("code", "source", "per_source", "numpy")
NUM_SPARES = 4

Opener = Callable[[int], AbstractContextManager[SyncSession]]


def play(session: SyncSession) -> None:
    """One episode of 25 steps; what ends earlier is reset and goes on."""
    played(session)
    for text in moves(NUM_STEPS):
        reply = session.step(text)
        if not reply.ok:
            raise RuntimeError(f"step: {reply.detail}")
        if reply.terminated:
            played(session)


def opener(stack: ExitStack, pool: SyncPool, variant: str, plan: Plan) -> Opener:
    """How sessions of a variant are made."""
    source = plan.numpy_source if variant == "numpy" else plan.source
    if variant == "per_source":
        template = stack.enter_context(built(pool, "source_template")(source))
        return lambda seed: template.session(seed)  # type: ignore[no-any-return]
    return lambda seed: pool.session(source, seed)


def rate(variant: str, plan: Plan, seconds: float, num_cpus: int = 1) -> dict[str, Any]:
    """Episodes per second of one pool on `num_cpus` CPUs, one thread of the host on each.

    Raises:
        Unavailable: the pool has no such variant yet.
    """
    values: dict[str, Any] = {"numpy": variant == "numpy", "cache": variant != "source"}
    limits = policy(spares=NUM_SPARES * num_cpus, num_workers=8 * num_cpus, warm=False, **values)
    with Pinned(num_cpus) as cpus, ExitStack() as stack:
        pool = SyncPool(limits)
        tree = Tree(pool.start)
        stack.callback(pool.close)
        opened = opener(stack, pool, variant, plan)
        for seed in range(3 * NUM_SPARES):  # spares, cache and templates are warm by then
            with opened(seed) as session:
                play(session)
        counts = [0] * num_cpus
        failures: list[Exception] = []
        cpu_before, begun = cpu_s(tree), time.perf_counter()
        until = begun + seconds

        def work(index: int) -> None:
            seed = SEED + index
            try:
                while time.perf_counter() < until:
                    with opened(seed) as session:
                        play(session)
                    counts[index] += 1
                    seed += num_cpus
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(1, num_cpus)]
        for thread in threads:
            thread.start()
        work(0)
        for thread in threads:
            thread.join()
        wall_s, used_s = time.perf_counter() - begun, cpu_s(tree) - cpu_before
        if failures:
            raise failures[0]
    return {
        "episodes": sum(counts),
        "seconds": wall_s,
        "per_second": sum(counts) / wall_s,
        "cpu_ms_per_episode": used_s / max(sum(counts), 1) * 1e3,
        "cpu_share": used_s / wall_s / num_cpus,
        "cpus": cpus,
    }


def cpu_s(tree: Tree) -> float:
    """CPU seconds of this process, the pool's broker, its children, and all it has collected."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total = own.ru_utime + own.ru_stime
    if tree.broker is not None:
        total += _of(tree.broker, collected=True)
        total += sum(_of(pid, collected=False) for pid in children(tree.broker))
    return total


def _of(pid: int, collected: bool) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    ticks = sum(map(int, fields[11:15] if collected else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")
