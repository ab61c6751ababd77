"""What callers can rely on: order, seeds, limits of arguments, busy, many at once."""

import asyncio
import os
import threading

import pytest

from spade_async.errors import SandboxBusy, SandboxError
from spade_async.sandbox import Pool, SandboxPolicy, SyncPool
from spade_async.types import Outcome

pytestmark = pytest.mark.timeout(60)

SOURCE = """
class FirstEnv:
    def __init__(self):
        self.bonus = random.random()
    def reset(self, seed=None):
        self.seed = seed
        self.total = 0
        return f"seed {seed} {random.random():.12f} {self.bonus:.12f}", {"a": 1}
    def step(self, action):
        self.total += len(action)
        end = self.total > 5
        return f"{action}|{random.random():.12f}|{hash('x')}", 0.5, end, False, {}
    def hint(self):
        return f"hint {self.seed}"

class SecondEnv:
    pass
"""


async def transcript(pool, seed):
    async with pool.session(SOURCE, seed) as session:
        replies = [session.loaded, await session.reset(), await session.hint()]
        replies += [await session.step("abc"), await session.step("defg")]
        return [(r.outcome, r.observation, r.reward, r.terminated, r.detail) for r in replies]


def test_the_same_seed_gives_the_same_transcript_serial_and_64_at_once():
    async def run():
        async with Pool(SandboxPolicy(num_workers=64, spares=8, wall_s_per_call=20)) as pool:
            serial = [await transcript(pool, seed) for seed in (3, 3, 4)]
            assert serial[0] == serial[1] != serial[2]
            assert all(outcome is Outcome.FINISHED for outcome, *_ in serial[0])
            at_once = await asyncio.gather(*(transcript(pool, 3) for _ in range(64)))
            assert all(each == serial[0] for each in at_once)
            assert pool.stats()["acquired"] == 67
            assert len(pool.drain_latencies()) == 67 * 5
            assert pool.drain_latencies() == []

    asyncio.run(run())


def test_64_sessions_live_at_once():
    async def run():
        async with Pool(SandboxPolicy(num_workers=64, load_wall_s=30)) as pool:
            sessions = [pool.session(SOURCE, seed) for seed in range(64)]
            await asyncio.gather(*(session.__aenter__() for session in sessions))
            assert pool.stats()["live"] == 64
            replies = await asyncio.gather(*(session.reset() for session in sessions))
            assert [r.observation.split()[1] for r in replies] == [str(i) for i in range(64)]
            await asyncio.gather(*(session.close() for session in sessions))
            assert pool.stats()["live"] == 0

    asyncio.run(run())


def test_calls_out_of_order_have_defined_answers(pool):
    with pool.session(SOURCE, 1) as session:
        assert session.step("x").outcome is Outcome.BAD_VALUE
        assert session.step("x").detail.startswith("in step: order: step before reset")
        assert session.hint().outcome is Outcome.BAD_VALUE
        first = session.reset()
        assert session.step("123456").terminated
        assert "after the episode ended" in session.step("x").detail
        assert session.reset() == first or session.reset().ok
        assert session.step("x").ok
    with pytest.raises(SandboxError):
        session.step("x")


def test_a_class_without_hint_says_so(pool):
    source = "class AEnv:\n def reset(self, seed): return 'bare'\n"
    with pool.session(source, 1) as session:
        assert session.reset().observation == "bare"
        reply = session.hint()
        assert (reply.outcome, reply.observation, reply.detail) == (Outcome.FINISHED, "", "no hint")


def test_a_constructor_that_demands_max_turns_gets_the_budget(pool):
    source = (
        "class AEnv:\n def __init__(self, max_turns): self.n = max_turns\n"
        " def reset(self, seed): return str(self.n), {}\n"
    )
    with pool.session(source, 1) as session:
        assert session.reset().observation == "25"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (" def __init__(self, size): pass\n", "missing 1 required positional argument: 'size'"),
        (" def __init__(self, max_turns, size): pass\n", "missing 2 required"),
        (" def __init__(self, max_turns): [] + 1\n", "can only concatenate list"),
        (" @__import__('abc').abstractmethod\n def reset(self, seed): pass\n", "abstract"),
    ],
)  # fmt: skip
def test_a_class_that_cannot_be_constructed_says_what_it_lacks(pool, body, words):
    base = "(__import__('abc').ABC)" if "abc" in body else ""
    with pool.session(f"class AEnv{base}:\n{body}", 0) as session:
        assert session.loaded.outcome is Outcome.EXCEPTION
        assert session.loaded.detail.startswith("in constructor: TypeError: ")
        assert words in session.loaded.detail


@pytest.mark.parametrize(
    "seed", [0, 2**31, 10**40, pytest.param((1 << 20_000) + 1, id="20001 bits")]
)
def test_seeds_of_any_size_arrive(pool, seed):
    source = "class AEnv:\n def reset(self, seed): return hex(seed), {}\n"
    with pool.session(source, seed) as session:
        assert session.reset().observation == hex(seed)
        assert session.reset(7).observation == "0x7"


@pytest.mark.parametrize(
    "seed", [-1, 1.5, None, True, "1", pytest.param(1 << (1 << 21), id="2 Mbit")]
)
def test_other_seeds_are_refused(pool, seed):
    with pytest.raises(ValueError, match="seed"):
        pool.session(SOURCE, seed)


@pytest.mark.parametrize("action", ["", "\0", "ä\U0001f600", "x" * 65_536, "line\nline\r\n"])
def test_actions_are_delivered_exactly(pool, action):
    source = (
        "class AEnv:\n def reset(self, seed): return '', {}\n"
        " def step(self, a): return repr((len(a), a[:9], a[-9:])), 0, False, False, {}\n"
    )
    with pool.session(source, 0) as session:
        session.reset()
        assert eval(session.step(action).observation) == (len(action), action[:9], action[-9:])


@pytest.mark.parametrize("action", ["\ud800", "x" * 65_537, b"x", None])
def test_actions_that_cannot_be_delivered_are_refused_before_sending(pool, action):
    with pool.session(SOURCE, 0) as session:
        session.reset()
        with pytest.raises(ValueError, match="action"):
            session.step(action)
        assert session.step("x").ok


def test_a_source_above_the_limit_is_refused_and_one_at_the_limit_loads(pool):
    size = pool.policy.source_bytes
    with pytest.raises(ValueError, match="source"):
        pool.session("#" * (size + 1), 0)
    padded = SOURCE + "#" * (size - len(SOURCE))
    with pool.session(padded, 0) as session:
        assert session.loaded.ok


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_workers", 0), ("spares", -1), ("level", "none"), ("memory_bytes", 1),
     ("wall_s_per_call", float("nan")), ("cpu_s_per_call", 0), ("queue", True)],
)  # fmt: skip
def test_a_policy_that_cannot_work_names_the_field(name, value):
    with pytest.raises(ValueError, match=name):
        SandboxPolicy(**{name: value})


def test_a_full_queue_is_busy_and_a_waiter_gets_its_turn():
    async def run():
        async with Pool(SandboxPolicy(num_workers=1, spares=1, queue=1)) as pool:
            async with pool.session(SOURCE, 1) as first:
                assert first.loaded.ok
                waiter = asyncio.create_task(transcript(pool, 2))
                await asyncio.sleep(0.05)
                with pytest.raises(SandboxBusy, match="queue"):
                    await pool.session(SOURCE, 3).__aenter__()
                assert pool.stats()["busy"] == 1
            assert len(await waiter) == 5

    asyncio.run(run())


def test_a_cancelled_waiter_and_a_cancelled_call_give_their_places_back():
    async def run():
        async with Pool(SandboxPolicy(num_workers=1, spares=1, queue=1)) as pool:
            async with pool.session(SOURCE, 1):
                waiter = asyncio.create_task(transcript(pool, 2))
                await asyncio.sleep(0.02)
                waiter.cancel()
                await asyncio.gather(waiter, return_exceptions=True)
                assert pool.stats()["waiting"] == 0
            hang = "class AEnv:\n def __init__(self):\n  while True: pass"
            stuck = asyncio.create_task(pool.session(hang, 0).__aenter__())
            await asyncio.sleep(0.1)
            stuck.cancel()
            await asyncio.gather(stuck, return_exceptions=True)
            assert pool.stats()["live"] == 0
            assert len(await transcript(pool, 2)) == 5

    asyncio.run(run())


def test_closing_the_pool_ends_calls_in_flight_with_a_fault():
    async def run():
        pool = Pool(SandboxPolicy(num_workers=2, spares=1))
        await pool.start()
        hang = "class AEnv:\n def __init__(self):\n  while True: pass"
        stuck = asyncio.create_task(pool.session(hang, 0).__aenter__())
        await asyncio.sleep(0.1)
        await pool.close()
        await pool.close()
        with pytest.raises(SandboxError):
            await stuck
        with pytest.raises(SandboxError, match="closed"):
            await pool.session(SOURCE, 0).__aenter__()

    asyncio.run(run())


def test_closing_a_session_never_waits_for_its_code():
    async def run():
        async with Pool(SandboxPolicy(wall_s_per_call=50, cpu_s_per_call=50)) as pool:
            source = "class AEnv:\n def reset(self, s):\n  while True: pass"
            session = pool.session(source, 0)
            await session.__aenter__()
            call = asyncio.create_task(session.reset())
            await asyncio.sleep(0.05)
            begun = asyncio.get_running_loop().time()
            await session.close()
            assert asyncio.get_running_loop().time() - begun < 0.5
            with pytest.raises(SandboxError, match="closed"):
                await call

    asyncio.run(run())


def test_a_sync_pool_serves_many_threads(pool):
    results = []

    def play(seed):
        with pool.session(SOURCE, seed) as session:
            results.append((seed, session.reset().observation.split()[1]))

    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(seed, str(seed)) for seed in range(12)]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_and_the_parent_goes_on(pool):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            pool.session(SOURCE, 0).__enter__()
        except SandboxError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with pool.session(SOURCE, 0) as session:
        assert session.loaded.ok


def test_a_pool_is_started_once():
    pool = SyncPool(SandboxPolicy(num_workers=1, spares=1))
    with pytest.raises(SandboxError, match="not started"):
        pool.stats()
    with pool, pytest.raises(SandboxError, match="already started"):
        pool.start()
    with pytest.raises(SandboxError, match="closed"):
        pool.stats()
