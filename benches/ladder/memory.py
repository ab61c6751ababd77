"""What a live jail holds: private memory of one worker, and how many fit into a GiB."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benches.ladder.episode import play
from benches.ladder.native import SEED, policy, rest
from benches.ladder.plan import Plan
from benches.ladder.process import Tree, memory
from benches.ladder.row import Unavailable
from spade_async.sandbox import SandboxPolicy, SyncPool

NUM_WORKERS = 8


def best_policy(**values: Any) -> SandboxPolicy:
    """With the compile cache where there is one."""
    try:
        return policy(**values)
    except Unavailable:
        return policy(cache=False, **values)


def of_workers(plan: Plan, numpy: bool) -> dict[str, dict[str, float]]:
    """Median KiB by kind of spares that wait and of workers after 25 steps.

    Raises:
        Unavailable: the workers cannot be told from other processes here.
    """
    source = plan.numpy_source if numpy else plan.source
    with ExitStack() as stack:
        limits = best_policy(numpy=numpy, spares=NUM_WORKERS, num_workers=NUM_WORKERS, warm=False)
        pool = SyncPool(limits)
        tree = Tree(pool.start)
        stack.callback(pool.close)
        rest(pool, NUM_WORKERS)
        time.sleep(0.05)
        spares = tree.workers()
        idle = [memory(pid) for pid in spares]
        for seed in range(NUM_WORKERS):
            play(stack.enter_context(pool.session(source, SEED + seed)))
        used = [memory(pid) for pid in spares]  # the oldest spares are the ones that were taken
    return {"idle": _medians(idle), "used": _medians(used)}


def per_gib(plan: Plan, num: int) -> dict[str, float]:
    """Live jails per GiB by what the machine's available memory loses to `num` used ones.

    Kernel memory is in it. Other work on the machine is too: measure on a quiet one.
    """
    with ExitStack() as stack:
        pool = stack.enter_context(SyncPool(best_policy(spares=1, num_workers=num, warm=False)))
        rest(pool, 1)
        time.sleep(0.2)
        before = _available_kib()
        for seed in range(num):
            play(stack.enter_context(pool.session(plan.source, seed)))
        time.sleep(0.2)
        each = (before - _available_kib()) / num
    return {"kib_each": each, "jails_per_gib": (1 << 20) / each if each > 0 else 0.0, "num": num}


def _available_kib() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1])
    raise Unavailable("/proc/meminfo has no MemAvailable")


def _medians(all_of_them: list[dict[str, int]]) -> dict[str, float]:
    if not all_of_them:
        raise Unavailable("no worker was found")
    names = all_of_them[0]
    return {name: statistics.median(one[name] for one in all_of_them) for name in names}
