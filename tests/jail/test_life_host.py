"""What the host does to a pool: threads that end, forks, signals, exits."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import SandboxPolicy, SyncPool
from tests.support.family import alive, descendants, until

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parents[2]
SMALL = SandboxPolicy(num_workers=4, spares=2)
GOOD = """
class GoodEnv:
    def reset(self, seed=None): return f"start {seed} {random.random()}", {}
    def step(self, action): return f"{action} {random.random()}", 0.5, False, False, {}
"""
HEAD = f"""
import asyncio, os, random, signal, sys, threading, time
from spade_async.errors import SandboxError
from spade_async.sandbox import Pool, SandboxPolicy, SyncPool
from tests.support.family import alive, descendants, until
GOOD = {GOOD!r}
SLEEP = '''
import time
class AEnv:
    def reset(self, seed=None): return "start", {{}}
    def step(self, action):
        time.sleep(10**6)
'''
LONG = SandboxPolicy(num_workers=8, spares=2, wall_s_per_call=600, cpu_s_per_call=600)
def good(pool):
    with pool.session(GOOD, 1) as session:
        assert session.reset().observation.startswith("start 1 ")
        assert session.step("a").ok
"""


def run(program: str, seconds: float = 120.0) -> str:
    """Output of a program in a process of its own, which must leave no process behind."""
    code = HEAD + textwrap.dedent(program)
    # The parent of whatever outlives it, so that nothing can hide below process 1.
    guard = (
        "import ctypes, os, subprocess, sys, time\n"
        "assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0\n"  # PR_SET_CHILD_SUBREAPER
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.support.family import descendants, until\n"
        f"done = subprocess.run([sys.executable, '-W', 'ignore', '-c', sys.argv[1]], "
        f"timeout={seconds})\n"
        "left = until(lambda: descendants(os.getpid()), lambda left: not left, 5.0)\n"
        "sys.exit(done.returncode or (f'left behind: {left}' if left else 0))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", guard, code],
        cwd=ROOT, capture_output=True, text=True, timeout=seconds + 60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def assert_good(pool: SyncPool) -> None:
    with pool.session(GOOD, 1) as session:
        assert session.reset().observation.startswith("start 1 ")
        assert session.step("a").ok


# Threads


def test_a_pool_started_in_a_thread_that_ends_keeps_its_workers():
    pool = SyncPool(SMALL)
    thread = threading.Thread(target=pool.start)
    thread.start()
    thread.join()
    with pool.session(GOOD, 1) as session:
        session.reset()
        time.sleep(0.5)  # a death signal of the thread would have come by now
        assert session.step("a").ok
        assert_good(pool)
    pool.close()


def test_a_pool_can_be_closed_and_dropped_by_another_thread():
    for drop in (False, True):
        pools = [SyncPool(SMALL)]
        pools[0].start()
        assert_good(pools[0])
        members = descendants(os.getpid())

        def end(pools=pools, drop=drop):
            pool = pools.pop()
            if not drop:
                pool.close()

        thread = threading.Thread(target=end)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        gc.collect()
        assert not until(lambda m=members: alive(m), lambda left: not left, 5.0)


def test_a_pool_dropped_in_an_exception_leaves_nothing():
    def fail() -> None:
        pool = SyncPool(SMALL)
        pool.start()
        session = pool.session(GOOD, 1)
        session.__enter__()
        session.reset()
        seen.update(descendants(os.getpid()))
        raise RuntimeError("on purpose")

    seen: set[int] = set()
    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    gc.collect()
    assert len(seen) >= 4
    assert not until(lambda: alive(seen), lambda left: not left, 5.0)


def test_closing_ends_calls_of_other_threads_and_nothing_hangs():
    source = "import time\nclass AEnv:\n def reset(self, seed): time.sleep(10**6)\n"
    pool = SyncPool(SandboxPolicy(num_workers=3, spares=1, wall_s_per_call=600, cpu_s_per_call=600))
    pool.start()
    ends: list[object] = []

    def block() -> None:
        try:
            with pool.session(source, 0) as session:
                ends.append(session.reset())
        except SandboxError as fault:
            ends.append(fault)

    threads = [threading.Thread(target=block) for _ in range(5)]  # two of them wait for a worker
    for thread in threads:
        thread.start()
    assert until(lambda: pool.stats()["waiting"], lambda n: n == 2, 20) == 2
    pool.close()
    for thread in threads:
        thread.join(60)
    assert len(ends) == 5
    assert all(isinstance(end, SandboxError) for end in ends), ends


# Exits and signals


@pytest.mark.parametrize(
    "end",
    ["", "sys.exit(0)", "raise SystemExit", "threading.Thread(target=pool.close).start()",
     "import atexit; atexit.register(lambda: good(pool))", "del pool, session",
     "threading._shutdown = lambda: None"],
)  # fmt: skip
def test_however_the_interpreter_exits_nothing_is_left_and_nothing_hangs(end):
    run(f"""
    pool = SyncPool(LONG)
    pool.start()
    session = pool.session(GOOD, 1)
    session.__enter__()
    {end}
    """)


def test_an_exit_with_an_asyncio_pool_in_use_leaves_nothing():
    run("""
    async def main():
        pool = Pool(LONG)
        await pool.start()
        session = pool.session(SLEEP, 1)
        await session.__aenter__()
        await session.reset()
        task = asyncio.create_task(session.step("a"))
        await asyncio.sleep(0.1)
    asyncio.run(main())
    """)


def test_ctrl_c_during_a_batched_step_ends_it_at_once_and_leaves_nothing():
    out = run("""
    with SyncPool(LONG) as pool:
        for round in range(5):
            sessions = [pool.session(SLEEP if at % 2 else GOOD, at) for at in range(8)]
            for session in sessions:
                session.__enter__()
                assert session.reset().ok
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            begun = time.monotonic()
            try:
                pool.step_many([(session, "a") for session in sessions])
            except KeyboardInterrupt:
                print("interrupted")
            assert time.monotonic() - begun < 60
            for session in sessions:
                session.close()
            good(pool)
            assert pool.stats()["live"] == 0
    """)
    assert out == "interrupted\n" * 5


def test_ctrl_c_during_a_call_a_load_and_a_wait_for_a_worker():
    out = run("""
    def interrupted(call):
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            call()
        except KeyboardInterrupt:
            print("interrupted")
    policy = SandboxPolicy(num_workers=1, spares=1, wall_s_per_call=600, cpu_s_per_call=600,
                           load_wall_s=600)
    with SyncPool(policy) as pool:
        interrupted(pool.session("import time; time.sleep(10**6)", 0).__enter__)
        good(pool)
        with pool.session(SLEEP, 0) as session:
            session.reset()
            interrupted(lambda: session.step("a"))
            try:
                session.step("a")
            except SandboxError:
                print("over")
        good(pool)
        with pool.session(GOOD, 0) as session:
            interrupted(pool.session(GOOD, 1).__enter__)
            assert session.reset().ok
        good(pool)
        assert pool.stats()["live"] == pool.stats()["waiting"] == 0
    """)
    assert out == "interrupted\ninterrupted\nover\ninterrupted\n"


def test_ctrl_c_in_asyncio_cancels_the_batch_and_leaves_nothing():
    out = run("""
    async def main():
        async with Pool(LONG) as pool:
            sessions = [pool.session(SLEEP, at) for at in range(4)]
            for session in sessions:
                await session.__aenter__()
                await session.reset()
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                await pool.step_many([(session, "a") for session in sessions])
            except asyncio.CancelledError:
                print("cancelled")
                raise
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("interrupted")
    """)
    assert out == "cancelled\ninterrupted\n"


def test_a_handler_that_uses_the_pool_during_a_call_harms_nothing():
    out = run("""
    with SyncPool(LONG) as pool:
        def handler(number, frame):
            good(pool)
            print("handled", flush=True)
        signal.signal(signal.SIGUSR1, handler)
        source = SLEEP.replace("10**6", "1.0")
        with pool.session(source, 0) as session:
            session.reset()
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            session.step("a")
        good(pool)
    """)
    assert out == "handled\n"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_closes_its_end_does_not_kill_a_host_with_default_sigpipe(when):
    # Many programs set SIGPIPE back to its default, which is death.
    out = run(f"""
    when = {when!r}
    source = '''
    import os
    class AEnv:
        def reset(self, seed=None):
            os.close(0)
            return "start", {{}}
        def step(self, action): return "x", 0.0, False, False, {{}}
    '''
    if when == "before":
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with SyncPool(LONG) as pool:
        if when == "after":
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        for _ in range(20):
            with pool.session(source, 0) as session:
                assert session.loaded.ok
                session.reset()
                assert not session.step("a" * 60_000).ok
        good(pool)
    async def main():
        async with Pool(LONG) as pool:
            for _ in range(20):
                async with pool.session(source, 0) as session:
                    assert session.loaded.ok
                    await session.reset()
                    assert not (await session.step("a" * 60_000)).ok
    asyncio.run(main())
    print("alive")
    """)
    assert out == "alive\n"


# Forks of the host


def test_a_forked_child_is_refused_everything_and_the_parent_goes_on():
    out = run("""
    pool = SyncPool(LONG)
    pool.start()
    session = pool.session(GOOD, 1)
    session.__enter__()
    other = pool.session(GOOD, 2)
    assert session.reset().ok
    busy = threading.Thread(target=lambda: [good(pool) for _ in range(200)])
    busy.start()  # so that locks may be held at the moment of a fork
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            refused = 0
            for call in (
                other.__enter__, session.reset, session.hint, lambda: session.step("a"),
                lambda: pool.step_many([(session, "a")]), pool.stats, pool.events,
                pool.drain_latencies, lambda: pool.capabilities, session.resources,
                session.close,
            ):
                try:
                    call()
                except SandboxError as fault:
                    refused += "fork" in str(fault)
            pool.close()
            del session, other, pool
            print(refused, flush=True)
            sys.exit(0)  # all the way through the interpreter's end
        assert os.waitpid(pid, 0)[1] == 0
        assert session.step("a").ok
    busy.join()
    good(pool)
    """)
    assert set(out.split()) == {"11"}, out
