"""Thousands of sessions and hundreds of starts that are cut short leave nothing behind."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spade_async.sandbox import SandboxPolicy, SyncPool
from tests.support.family import control_groups, descendants, mounts, until

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parents[2]
SMALL = SandboxPolicy(num_workers=4, spares=2)
GOOD = """
class GoodEnv:
    def reset(self, seed=None): return f"start {seed} {random.random()}", {}
"""


def counts(pool: SyncPool) -> dict[str, int]:
    gc.collect()
    pool.drain_latencies()
    pool.events()
    until(lambda: pool.stats()["spare"], lambda spare: spare >= SMALL.spares, 20)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    family = until(lambda: len(descendants(os.getpid())), lambda n: n <= 3 + SMALL.spares, 5)
    return {
        "fds": len(os.listdir("/proc/self/fd")),
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
        "processes": family,
        "mounts": mounts(),
        "groups": len(control_groups(os.getpid())),
        "threads": threading.active_count(),
    }


@pytest.mark.slow
def test_three_thousand_sessions_leave_everything_flat():
    crash = "class AEnv:\n def reset(self, s):\n  import os\n  os._exit(9)\n"
    kinds = [GOOD, GOOD, GOOD, crash, "x = (", "class AEnv:\n def reset(self, s): 1/0\n"]
    with SyncPool(SMALL) as pool:

        def play(first: int, count: int) -> None:
            for seed in range(first, first + count):
                with pool.session(kinds[seed % len(kinds)], seed) as session:
                    session.reset()

        play(0, 500)
        before = counts(pool)
        play(500, 3000)
        after = counts(pool)
        with pool.session(GOOD, 1) as session:
            assert session.reset().observation.startswith("start 1 ")
    print(before, after)
    assert after["rss"] - before["rss"] < 3 << 20
    assert abs(after["fds"] - before["fds"]) <= 4
    assert abs(after["processes"] - before["processes"]) <= 1
    for name in ("mounts", "groups", "threads"):
        assert after[name] == before[name], name
    assert not until(lambda: control_groups(os.getpid()), lambda left: not left, 5.0)


STARTS = """
import ctypes, os, random, signal, sys, threading, time
sys.path.insert(0, os.getcwd())
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER: orphans come to us
from spade_async.errors import SandboxError
from spade_async.sandbox import SandboxPolicy, SyncPool
from tests.support.family import command, control_groups, descendants, until
moments = random.Random(int(sys.argv[1]))
counts = {"started": 0, "refused": 0, "killed": 0}
def go(pools):
    try:
        pool = SyncPool(SandboxPolicy(num_workers=1, spares=1))
        pool.start()
        pools.append(pool)
        counts["started"] += 1
    except SandboxError:
        counts["refused"] += 1
for round in range(int(sys.argv[2])):
    pools = []
    threads = [threading.Thread(target=go, args=(pools,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(moments.uniform(0.0, 0.25))
    ours = sorted(pid for pid in descendants(os.getpid()) if "_main" in command(pid))
    for pid in moments.sample(ours, min(len(ours), moments.randint(1, 2))):
        try:
            os.kill(pid, signal.SIGKILL)
            counts["killed"] += 1
        except ProcessLookupError:
            pass
    for thread in threads:
        thread.join(200)
        assert not thread.is_alive(), "a start hangs"
    for pool in pools:
        pool.close()
left = until(lambda: descendants(os.getpid()), lambda left: not left, 5.0)
assert not left, [(pid, command(pid)) for pid in left]
groups = until(lambda: control_groups(os.getpid()), lambda left: not left, 2.0)
print(counts, "control groups left:", len(groups))
"""


@pytest.mark.slow
def test_deaths_at_random_points_of_200_starts_leave_no_survivor():
    seed = 4_711
    command = [sys.executable, "-W", "ignore", "-c", STARTS, str(seed), "100"]  # two at a time
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    print(f"seed {seed}: {done.stdout}")
