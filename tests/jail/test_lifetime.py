"""Nothing is left behind: processes, descriptors, and no outcome of one worker reaches another."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import Pool, SandboxPolicy, SyncPool
from tests.support.family import descendants, wait_gone
from tests.support.few_descriptors import check_recovery

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "class AEnv:\n def reset(self, seed): return 'x', {}\n"
HANG = "class AEnv:\n def reset(self, seed):\n  while True: pass\n"


@pytest.mark.parametrize("without", [(), ("pid_namespace", "worker_pid_namespace")])
def test_closing_the_pool_leaves_no_process(without):
    pool = SyncPool(SandboxPolicy(num_workers=4, spares=4), _without=frozenset(without))
    before = descendants(os.getpid())
    with pool:
        session = pool.session(SOURCE, 0)
        session.__enter__()
        mine = descendants(os.getpid()) - before
        assert len(mine) >= 4
        begun = time.monotonic()
    assert time.monotonic() - begun < 2
    assert not wait_gone(mine, 2 - (time.monotonic() - begun))


OWNER = """
import asyncio, sys
from spade_async.sandbox import Pool, SandboxPolicy, SyncPool
from tests.support.family import alive, descendants, wait_gone
from tests.support.few_descriptors import check_recovery
without = frozenset(sys.argv[2:])
async def main():
    policy = SandboxPolicy(num_workers=4, spares=4, wall_s_per_call=60, cpu_s_per_call=60)
    async with Pool(policy, _without=without) as pool:
        async with pool.session(sys.argv[1], 0) as session:
            print("ready", flush=True)
            await session.reset()
asyncio.run(main())
"""


@pytest.mark.parametrize("without", [(), ("pid_namespace", "worker_pid_namespace")])
def test_kill_9_of_the_owner_leaves_no_process_within_two_seconds(without):
    command = [sys.executable, "-c", OWNER, HANG, *without]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        time.sleep(0.2)
        family = descendants(owner.pid)
        assert len(family) >= 5
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        left = wait_gone(family, 2.0)
        assert not left


def test_kill_9_of_the_owner_while_a_forked_child_holds_its_sockets():
    program = OWNER.replace(
        'print("ready", flush=True)',
        "import os, time\n            pid = os.fork()\n"
        "            if pid == 0:\n                time.sleep(20); os._exit(0)\n"
        '            print("ready", pid, flush=True)',
    )
    command = [sys.executable, "-W", "ignore", "-c", program, HANG]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline().split()[1])
        family = descendants(owner.pid) - {child}
        assert len(family) >= 5
        owner.kill()
        owner.wait()
        left = wait_gone(family, 2.0)
        os.kill(child, signal.SIGKILL)
        assert not left


def test_an_owner_that_just_exits_leaves_nothing_and_does_not_hang():
    program = (
        "from spade_async.sandbox import *\n"
        f"pool = SyncPool()\npool.start()\ns = pool.session({SOURCE!r}, 0)\ns.__enter__()\n"
    )
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=20, check=False)
    assert done.returncode == 0
    assert time.monotonic() - begun < 15


def test_a_dead_broker_costs_its_sessions_and_not_the_pool():
    pool = SyncPool(SandboxPolicy(num_workers=2, spares=1))
    before = descendants(os.getpid())
    with pool, pool.session(SOURCE, 0) as session:
        assert session.reset().ok
        stub = next(
            pid
            for pid in descendants(os.getpid()) - before
            if f"\nPPid:\t{os.getpid()}\n" in Path(f"/proc/{pid}/status").read_text()
        )
        os.kill(stub, signal.SIGKILL)
        while not pool.stats()["broker_restarts"]:
            time.sleep(0.01)
        with pytest.raises(SandboxError, match="broker"):
            session.step("1")
        with pool.session(SOURCE, 0) as other:
            assert other.reset().ok


def test_many_episodes_leave_descriptors_and_processes_flat(pool):
    def round_of(count: int) -> None:
        for seed in range(count):
            with pool.session(SOURCE, seed) as session:
                assert session.reset().ok

    round_of(20)
    time.sleep(0.3)
    fds, family = len(os.listdir("/proc/self/fd")), len(descendants(os.getpid()))
    round_of(300)
    time.sleep(0.3)
    assert abs(len(os.listdir("/proc/self/fd")) - fds) <= 6
    assert abs(len(descendants(os.getpid())) - family) <= 4


def test_neighbours_of_a_hog_get_the_same_transcripts():
    async def play(pool: Pool, source: str) -> str:
        async with pool.session(source, 9) as session:
            reply = await session.reset()
            return f"{reply.outcome.value} {reply.observation}"

    good = "class AEnv:\n def reset(self, seed): return str(random.random()), {}\n"
    crash = "class AEnv:\n def reset(self, seed):\n  import os\n  os._exit(9)\n"

    async def main() -> None:
        policy = SandboxPolicy(num_workers=8, wall_s_per_call=10, cpu_s_per_call=0.3)
        async with Pool(policy) as pool:
            alone = await play(pool, good)
            mixed = await asyncio.gather(*(play(pool, s) for s in [good, HANG, crash] * 8))
            assert all(text == alone for text in mixed[::3])
            assert all(text.startswith("timed_out") for text in mixed[1::3])
            assert all(text.startswith("crashed") for text in mixed[2::3])

    asyncio.run(main())


def test_too_few_descriptors_is_a_typed_refusal_and_then_recovery():
    check_recovery("native", 40)
