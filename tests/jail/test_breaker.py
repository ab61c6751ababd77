"""Calls that meet each other: closing, cancelling, signals and waiting, on one pool at a time."""

import asyncio
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import Pool, SandboxPolicy, Session, SyncPool
from spade_async.types import Outcome
from tests.support.family import until

pytestmark = pytest.mark.timeout(120)

SOURCE = """
import time
class AnEnv:
    def reset(self, seed=None): return "start", {}
    def step(self, action):
        time.sleep(float(action))
        return "next", 0.5, False, False, {}
"""
LONG = SandboxPolicy(num_workers=4, spares=4, wall_s_per_call=60, cpu_s_per_call=60)


class Alarm(Exception):
    pass


@pytest.fixture
def alarm():
    """Set a handler for an alarm that comes soon."""
    before = signal.getsignal(signal.SIGALRM)

    def arm(handler, seconds=0.3):
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    yield arm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def raises(*_):
    raise Alarm


def test_a_handler_may_use_the_pool_while_its_thread_waits_for_a_worker(alarm):
    seen = []

    def handler(*_):
        seen.append(pool.stats()["waiting"])
        first.close()

    with SyncPool(SandboxPolicy(num_workers=1, spares=1)) as pool:
        first = pool.session(SOURCE, 1).__enter__()
        alarm(handler)
        with pool.session(SOURCE, 2) as second:
            assert second.reset().ok
        assert seen == [1]


def test_a_session_that_a_signal_kept_from_opening_leaves_nothing(alarm):
    slow = SOURCE + "time.sleep(60)\n"
    policy = SandboxPolicy(num_workers=1, spares=1, load_wall_s=60)
    with SyncPool(policy) as pool:
        for source in (slow, slow):  # the second needs the first one's place
            alarm(raises)
            with pytest.raises(Alarm):
                pool.session(source, 1).__enter__()
        assert pool.stats()["live"] == 0
        with pool.session(SOURCE, 1) as session:
            alarm(raises)
            with pytest.raises(Alarm):
                pool.session(SOURCE, 2).__enter__()
            assert session.reset().ok
        assert (pool.stats()["live"], pool.stats()["waiting"]) == (0, 0)


def test_a_signal_in_a_batch_ends_all_that_have_not_answered(alarm):
    with SyncPool(LONG) as pool:
        sessions = [pool.session(SOURCE, i).__enter__() for i in range(3)]
        assert all(session.reset().ok for session in sessions)
        alarm(raises, 3.0)
        with pytest.raises(Alarm):
            pool.step_many(zip(sessions, ["0", "50", "50"], strict=True))
        assert pool.stats()["live"] == 1  # the first, which had answered
        assert sessions[0].step("0").ok
        for session in sessions[1:]:
            with pytest.raises(SandboxError, match="cancelled"):
                session.step("0")


def test_who_waits_for_a_forkable_worker_is_not_passed_for_ever():
    done = threading.Event()
    with SyncPool(SandboxPolicy(num_workers=2, spares=2)) as pool:

        def plain():
            while not done.is_set():
                with pool.session(SOURCE, 1) as session:
                    session.reset()
                    session.step("0.01")

        threads = [threading.Thread(target=plain) for _ in range(5)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                served = pool.stats()["acquired"]
                with pool.session(SOURCE, 1, forkable=True) as session:
                    assert session.reset().ok
                # Whoever waited before it, and what two places serve while one is being made.
                assert pool.stats()["acquired"] - served < 200
        finally:
            done.set()
            for thread in threads:
                thread.join()


def test_no_more_workers_live_than_there_are_places():
    most = 0
    with SyncPool(SandboxPolicy(num_workers=1, spares=2)) as pool:
        for _ in range(5):
            opened = []

            def enter(forkable, opened=opened):
                opened.append(pool.session(SOURCE, 1, forkable=forkable).__enter__())

            threads = [threading.Thread(target=enter, args=(way,)) for way in (True, False)]
            for thread in threads:
                thread.start()
                time.sleep(0.001)
            for _ in threads:
                assert until(lambda opened=opened: len(opened), lambda count: count > 0, 30)
                time.sleep(0.2)
                most = max(most, pool.stats()["live"])
                opened.pop().close()
            for thread in threads:
                thread.join()
    assert most == 1


def test_closing_a_session_that_waits_tells_the_task_that_opens_it():
    async def main():
        async with Pool(SandboxPolicy(num_workers=1, spares=1)) as pool:
            async with pool.session(SOURCE, 1) as first:
                second = pool.session(SOURCE, 2)
                opening = asyncio.create_task(second.__aenter__())
                await asyncio.to_thread(until, lambda: pool.stats()["waiting"], bool, 30)
                await second.close()
                with pytest.raises(SandboxError, match="closed while it waited"):
                    await asyncio.wait_for(opening, 30)
                assert (await first.reset()).ok
            async with pool.session(SOURCE, 3) as third:
                assert (await third.reset()).outcome is Outcome.FINISHED

    asyncio.run(main())


def test_no_more_spares_are_kept_than_were_asked_for():
    with SyncPool(SandboxPolicy(num_workers=6, spares=2)) as pool:

        def some(count):
            for _ in range(count):
                with pool.session(SOURCE, 1) as session:
                    assert session.reset().ok

        for _ in range(5):
            threads = [threading.Thread(target=some, args=(10,)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert until(lambda: pool.stats()["spare"], lambda count: count == 2, 10) == 2
            time.sleep(0.3)  # whoever is still on the way
            assert pool.stats()["spare"] == 2


def test_tasks_may_ask_a_template_of_a_source_at_the_same_time():
    async def main():
        policy = SandboxPolicy(num_workers=8, spares=2)
        async with Pool(policy) as pool, await pool.source_template(SOURCE) as template:
            for _ in range(5):
                asked = [asyncio.create_task(template.session(i)) for i in range(6)]
                await asyncio.sleep(0)
                for one in asked[::2]:
                    one.cancel()
                copies = await asyncio.gather(*asked, return_exceptions=True)
                assert [type(copy) for copy in copies] == 3 * [asyncio.CancelledError, Session]
                for copy in copies[1::2]:
                    assert (await copy.reset()).ok
                    await copy.close()
            alone = await asyncio.to_thread(
                until, lambda: pool.stats()["live"], lambda live: live == 1, 30
            )
            assert alone == 1

    asyncio.run(main())


def test_threads_may_ask_a_template_of_a_source_at_the_same_time():
    def episode(seed):
        with template.session(seed) as copy:
            return copy.reset().outcome

    with SyncPool(LONG) as pool, pool.source_template(SOURCE) as template:
        with ThreadPoolExecutor(3) as threads:
            assert set(threads.map(episode, range(30))) == {Outcome.FINISHED}
        assert pool.stats()["live"] == 1
