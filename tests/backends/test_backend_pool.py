"""The same pool from every backend: many sessions, a bounded queue, ends that leave nothing."""

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Callable

import pytest

from spade_async.errors import SandboxBusy, SandboxError
from spade_async.sandbox import Pool, SyncPool, SyncSession
from spade_async.types import Outcome, Reply
from tests.backends.policies import BACKENDS, GUESS, policy
from tests.support.family import descendants

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.parametrize("backend", BACKENDS, indirect=True),
]

HANG = "class AEnv:\n def reset(self, s):\n  while True: pass\n"


def test_thirty_sessions_at_once_do_not_mix(backend):
    def play(seed: int) -> tuple[str, bool]:
        with own.session(GUESS, seed) as session:
            assert session.reset().ok
            secret = session.hint().observation
            return secret, session.step(secret).terminated

    with SyncPool(policy(backend, num_workers=30, wall_s_per_call=60, load_wall_s=60)) as own:
        with concurrent.futures.ThreadPoolExecutor(30) as threads:
            results = list(threads.map(play, range(30)))
        assert own.stats()["acquired"] == 30
    assert all(ended for _, ended in results)
    assert len({secret for secret, _ in results}) == 30


def test_a_full_queue_is_typed_and_passes(backend):
    with SyncPool(policy(backend, num_workers=1, spares=1, queue=1)) as own:
        first = own.session(GUESS, 0)
        first.__enter__()
        waiter = own.session(GUESS, 1)
        thread = threading.Thread(target=waiter.__enter__)
        thread.start()
        deadline = time.monotonic() + 30
        while own.stats()["waiting"] != 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(SandboxBusy, match="queue is full: 1 sessions"):
            own.session(GUESS, 2).__enter__()
        assert own.stats()["busy"] == 1
        first.close()
        thread.join(30)
        assert waiter.loaded.ok
        waiter.close()


SLEEPS = "class AEnv:\n def reset(self, s):\n  import time; time.sleep(1000)\n"


def cut_call(session: SyncSession, cut: Callable[[], None]) -> str:
    """What a call says that is cut while it is under way."""
    seen: list[str] = []

    def call() -> None:
        with pytest.raises(SandboxError) as fault:
            session.reset()
        seen.append(str(fault.value))

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.3)
    cut()
    thread.join(30)
    (said,) = seen
    return said


def test_closing_the_pool_during_a_call_is_a_fault_of_that_call(backend):
    own = SyncPool(policy(backend, wall_s_per_call=60, cpu_s_per_call=60))
    own.start()
    session = own.session(SLEEPS, 0)
    session.__enter__()
    assert "closed" in cut_call(session, own.close)
    with pytest.raises(SandboxError, match="closed"):
        own.session(GUESS, 0).__enter__()


def test_closing_a_session_during_its_call_ends_the_child(backend):
    with SyncPool(policy(backend, wall_s_per_call=60, cpu_s_per_call=60)) as own:
        session = own.session(SLEEPS, 0)
        session.__enter__()
        assert cut_call(session, session.close)
        assert own.stats()["live"] == 0
        with own.session(GUESS, 0) as other:
            assert other.reset().ok


def test_a_second_call_in_flight_is_a_fault(backend):
    async def main() -> tuple[Reply, SandboxError]:
        async with Pool(policy(backend)) as own, own.session(HANG, 0) as session:
            first = asyncio.create_task(session.reset())
            await asyncio.sleep(0.1)
            with pytest.raises(SandboxError, match="in flight") as fault:
                await session.reset()
            return await first, fault.value

    reply, _ = asyncio.run(main())
    assert reply.outcome is Outcome.TIMED_OUT


def test_cancelling_ends_the_child_and_is_a_fault_of_the_call(backend):
    async def main() -> dict[str, int]:
        async with Pool(policy(backend, wall_s_per_call=60, cpu_s_per_call=60)) as own:
            async with own.session(HANG, 0) as session:
                call = asyncio.create_task(session.reset())
                await asyncio.sleep(0.2)
                session.cancel()
                with pytest.raises(SandboxError, match="cancelled"):
                    await call
                with pytest.raises(SandboxError, match="cancelled"):
                    await session.reset()
                assert session.resources() is None
            return own.stats()

    assert asyncio.run(main())["live"] == 0


def test_steps_on_many_sessions_come_back_in_order(pool):
    source = (
        "class AEnv:\n def reset(self, s):\n  self.s = s\n  return 'x'\n"
        " def step(self, a):\n  if a == 'die': __import__('os')._exit(1)\n"
        "  return f'{self.s} {a}', 1, False, False, {}\n"
    )
    with pool.session(source, 0) as one, pool.session(source, 1) as two:
        assert one.reset().ok
        assert two.reset().ok
        assert one.ping().ok
        replies = pool.step_many([(two, "b"), (one, "a")])
        assert [reply.observation for reply in replies] == ["1 b", "0 a"]
        replies = pool.step_many([(one, "die"), (two, "c")])
        assert replies[0].outcome is Outcome.CRASHED
        assert replies[1].observation == "1 c"
        with pytest.raises(ValueError, match="twice"):
            pool.step_many([(two, "x"), (two, "y")])


def test_a_session_tells_what_it_has_used(pool):
    with pool.session(GUESS, 0) as session:
        assert session.reset().ok
        used = session.resources()
        assert used is not None
        assert used.calls == 2
        assert used.bytes_in > len(GUESS)
        assert used.bytes_out >= 2 * (4 + 18)
        assert used.wall_s > 0
        assert used.cpu_ns is None or used.cpu_ns > 0
        assert used.peak_rss_bytes is None or used.peak_rss_bytes > 1 << 20


def test_what_ended_a_session_is_an_event(pool):
    pool.events()
    with pool.session("class AEnv:\n def reset(self, s): __import__('os')._exit(7)", 0) as session:
        assert session.reset().outcome is Outcome.CRASHED
    events = [event for event in pool.events() if event.kind == "crashed"]
    assert len(events) == 1
    assert events[0].profile == "compute"
    assert events[0].detail == "left by itself with code 7"
    assert events[0].session is not None
    assert pool.events() == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_cannot_use_the_pool_and_the_parent_still_can(pool):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            pool.session(GUESS, 0).__enter__()
            os.write(writer, b"used")
        except SandboxError as fault:
            os.write(writer, str(fault).encode())
        finally:
            os._exit(0)
    os.close(writer)
    said = os.read(reader, 1000).decode()
    os.close(reader)
    os.waitpid(pid, 0)
    assert "must start its own pool" in said
    with pool.session(GUESS, 0) as session:
        assert session.reset().ok


def test_a_hundred_sessions_leave_nothing_behind(pool, backend):
    def play(count: int) -> None:
        for seed in range(count):
            with pool.session(GUESS, seed) as session:
                assert session.reset().ok

    def settle() -> tuple[int, int]:
        """Descriptors and descendants once the spares are full again and nothing dies."""
        deadline, last = time.monotonic() + 30, (-1, -1)
        while time.monotonic() < deadline:
            time.sleep(0.3)
            now = len(os.listdir("/proc/self/fd")), len(descendants(os.getpid()))
            if now == last and pool.stats()["spare"] == 2:
                return now
            last = now
        return last

    play(3)
    before = settle()
    play(100)
    after = settle()
    # The native pool may hold one worker more or less than its spares at the time of a look.
    most = 1 if backend == "native" else 0
    fds, processes = after[0] - before[0], after[1] - before[1]
    assert processes <= most
    assert fds <= 4 * most


def test_the_environment_of_the_host_is_not_inherited(step, monkeypatch, backend):
    monkeypatch.setenv("SPADE_SENTINEL", "sentinel-7f3a")
    with SyncPool(policy(backend)) as own:
        reply = step("import os\nreturn repr(dict(os.environ)), 1, True, False, {}", on=own)
    assert reply.ok
    assert "sentinel" not in reply.observation
    own_names = {"LC_ALL", "LC_CTYPE", "LD_BIND_NOW", "TZ"}
    for name in eval(reply.observation):
        assert name in own_names or name.startswith("PYTHON") or name.endswith("_NUM_THREADS")


def test_an_extra_module_is_there_when_asked_for_and_seeded(backend):
    pytest.importorskip("numpy")
    source = (
        "class AEnv:\n def reset(self, seed):\n"
        "  b = np.linalg.solve(np.eye(200) * 2, np.ones(200))\n"
        "  return repr((np.random.rand(3).tolist(), float(b.sum()))), {}\n"
        " def step(self, action): return 'x', np.float32(0.5), np.bool_(True), False, {}\n"
    )
    texts = []
    # 150 MiB: the interpreter with numpy is the base, what it allocates later comes on top.
    own = policy(backend, imports=("numpy",), memory_bytes=150 << 20, cpu_s_per_call=5)
    with SyncPool(own) as numpy_pool:
        for seed in (5, 5, 6):
            with numpy_pool.session(source, seed) as session:
                reply = session.reset()
                assert reply.ok, reply
                texts.append(reply.observation)
                reply = session.step("x")
                assert (reply.reward, reply.terminated) == (0.5, True)
    assert texts[0] == texts[1] != texts[2]
    # numpy.random.seed(5); numpy.random.rand() gives 0.22199317108973948
    assert texts[0].startswith("([0.22199317108973948, ")


def test_a_module_that_is_missing_is_a_fault_at_start(backend):
    with pytest.raises(SandboxError, match="no_such_module"):
        SyncPool(policy(backend, imports=("no_such_module",))).start()


def test_an_interpreter_that_is_missing_is_a_fault_at_start(backend):
    with pytest.raises(SandboxError, match="python"):
        SyncPool(policy(backend, python="/nonexistent/python")).start()
    with pytest.raises(SandboxError, match="python"):
        SyncPool(policy(backend, python="/bin/true")).start()
