"""`cancel()`, `ping()`, `resources()` and `events()`. Both fronts."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from spade_async.errors import SandboxBusy, SandboxError
from spade_async.sandbox import Pool, SandboxPolicy, SyncPool
from spade_async.types import Outcome
from tests.jail.test_api_fork import until
from tests.support.both_fronts import FRONTS, Front
from tests.support.family import descendants

pytestmark = pytest.mark.timeout(120)
both = pytest.mark.parametrize("front", FRONTS)

SOURCE = """
import os, time
class WorkEnv:
    def reset(self, seed=None):
        return "ready", {}
    def step(self, action):
        word, _, rest = action.partition(" ")
        if word == "burn":
            end = time.process_time() + float(rest)
            while time.process_time() < end: pass
        if word == "keep":
            self.kept = bytearray(os.urandom(1) * int(rest))
        if word == "hang":
            while True: pass
        if word == "die":
            os._exit(4)
        return word, 0.0, False, False, {}
"""
POLICY = SandboxPolicy(num_workers=4, spares=1, wall_s_per_call=30, cpu_s_per_call=20)
# Bytes of frames: a length and a head each; see the first lines of sandbox_rs/src/protocol.rs.
REQUEST, REPLY = 4 + 5, 4 + 18


def opened(pool, **named):
    session = pool.session(SOURCE, 1, **named).__enter__()
    assert session.loaded.ok
    assert session.reset().ok
    return session


@both
def test_resources_count_calls_bytes_and_time_exactly(front):
    with Front(front, POLICY) as pool:
        session = opened(pool)
        before = session.resources()
        assert before.calls == 2  # load and reset
        replies = [session.step(text) for text in ("abc", "burn 0.25", "ü")]
        replies += [session.hint(), session.ping()]
        after = session.resources()
        assert after.calls - before.calls == 5
        sent = [3, 9, 2, 0, 0]
        assert after.bytes_in - before.bytes_in == sum(REQUEST + size for size in sent)
        said = sum(REPLY + len((r.observation + r.detail).encode()) for r in replies)
        assert after.bytes_out - before.bytes_out == said
        assert sum(r.report.reply_bytes for r in replies) == said
        assert after.cpu_ns - before.cpu_ns >= 250_000_000
        assert after.wall_s - before.wall_s == pytest.approx(sum(r.report.wall_s for r in replies))
        assert after.wall_s - before.wall_s >= 0.25


@both
def test_resources_show_memory_that_is_kept_and_the_faults_of_getting_it(front):
    size = 20_000_000
    with Front(front, POLICY) as pool:
        session = opened(pool)
        before = session.resources()
        assert session.step(f"keep {size}").ok
        after = session.resources()
        assert after.private_bytes - before.private_bytes >= size
        assert after.peak_rss_bytes - before.peak_rss_bytes >= size - (1 << 20)
        assert after.minor_faults > before.minor_faults
        assert after.major_faults is not None
        assert after.private_bytes < size + (30 << 20)


@both
def test_resources_of_what_does_not_live_are_none(front):
    with Front(front, POLICY) as pool:
        session = pool.session(SOURCE, 1)
        assert session.resources() is None  # not open yet
        dead = opened(pool)
        assert dead.step("die").outcome is Outcome.CRASHED
        assert dead.resources() is None
        gone = opened(pool)
        gone.close()
        assert gone.resources() is None
        first = opened(pool, forkable=True)
        copy = first.fork()
        assert copy.resources().calls == 1
        assert copy.step("a").ok
        assert copy.resources().bytes_in == REQUEST + 1
        assert copy.resources().cpu_ns < first.resources().cpu_ns + 10**9
        with contextlib.suppress(SandboxError):
            first.cancel()
        until(lambda: copy.resources() is None)


@both
def test_ping_is_answered_at_any_stage_and_changes_nothing(front):
    with Front(front, POLICY) as pool:
        session = pool.session(SOURCE, 1).__enter__()
        for call in (session.reset, lambda: session.step("a")):
            reply = session.ping()
            assert (reply.outcome, reply.observation, reply.detail) == (Outcome.FINISHED, "", "")
            assert call().ok
        session.step("die")
        assert session.ping().outcome is Outcome.CRASHED


def test_cancel_from_another_thread_ends_the_worker_and_the_call():
    with SyncPool(POLICY) as pool:
        session = opened(pool)
        with_it = descendants(os.getpid())
        threading.Timer(0.2, session.cancel).start()
        with pytest.raises(SandboxError, match="cancelled"):
            session.step("hang")
        with pytest.raises(SandboxError, match="cancelled"):
            session.step("a")
        assert session.resources() is None
        until(lambda: len(with_it - descendants(os.getpid())) >= 1)
        assert pool.stats()["live"] == 0
        session.cancel()  # harmless
        assert opened(pool).step("a").ok


def test_cancel_ends_the_worker_whatever_holds_it():
    async def run():
        async with Pool(POLICY) as pool:
            before = descendants(os.getpid())
            session = await pool.session(SOURCE, 1).__aenter__()
            await session.reset()
            worker = await hanging(pool, session)
            call = asyncio.create_task(session.step("hang"))
            await asyncio.sleep(0.1)
            session.cancel()
            with pytest.raises(SandboxError, match="cancelled"):
                await call
            await asyncio.to_thread(until, lambda: not Path(f"/proc/{worker}").exists())
            # A task that is cancelled has the same effect.
            session = await pool.session(SOURCE, 1).__aenter__()
            await session.reset()
            worker = await hanging(pool, session)
            call = asyncio.create_task(session.step("hang"))
            await asyncio.sleep(0.1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await asyncio.to_thread(until, lambda: not Path(f"/proc/{worker}").exists())
            with pytest.raises(SandboxError, match="cancelled"):
                await session.step("a")
            # So has one that waits for a worker or for its load.
            many = [pool.session(SOURCE, n) for n in range(8)]
            tasks = [asyncio.create_task(one.__aenter__()) for one in many]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(r, asyncio.CancelledError) for r in results)
            assert pool.stats()["live"] == pool.stats()["waiting"] == 0
            await asyncio.to_thread(until, lambda: len(descendants(os.getpid()) - before) <= 3)

    async def hanging(pool, session):
        """The process of a session: the one whose CPU time a short loop makes grow most."""

        def ticks():
            found = {}
            for pid in descendants(os.getpid()):
                with contextlib.suppress(OSError):
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    found[pid] = int(fields[11])
            return found

        before = ticks()
        assert (await session.step("burn 0.3")).ok
        after = ticks()
        return max(after, key=lambda pid: after[pid] - before.get(pid, 0))

    asyncio.run(run())


@both
def test_events_tell_what_ended_sessions_and_are_told_once(front):
    policy = SandboxPolicy(num_workers=4, spares=1, wall_s_per_call=30, cpu_s_per_call=0.3)
    begun = time.time()
    with Front(front, policy) as pool:
        assert pool.events() == []
        assert opened(pool).step("hang").outcome is Outcome.TIMED_OUT
        assert opened(pool).step("die").outcome is Outcome.CRASHED
        opened(pool).close()  # nothing to tell
        events = pool.events()
        assert [event.kind for event in events] == ["timed_out", "crashed"]
        assert all(event.profile == "compute" for event in events)
        assert "limit 0.3 s" in events[0].detail
        assert "code 4" in events[1].detail
        assert events[0].session != events[1].session
        assert begun - 1 <= events[0].at <= events[1].at <= time.time() + 1
        assert pool.events() == []


@both
def test_events_tell_of_templates_and_brokers_that_were_replaced(front):
    others = descendants(os.getpid())
    with Front(front, POLICY) as pool:
        opened(pool).close()
        broker, template = machinery(others)
        os.kill(template, signal.SIGKILL)
        kinds = gathered(pool, {"template_died", "template_restarted"})
        assert kinds.index("template_died") < kinds.index("template_restarted")
        session = opened(pool)
        assert pool.stats()["template_restarts"] == 1
        os.kill(broker, signal.SIGKILL)
        with pytest.raises(SandboxError, match="broker"):
            until(lambda: not session.step("a").ok)
        kinds = gathered(pool, {"broker_died", "broker_restarted"})
        assert kinds.index("broker_died") < kinds.index("broker_restarted")
        assert opened(pool).step("a").ok
        assert pool.stats()["broker_restarts"] == 1


def gathered(pool, wanted):
    """Kinds of events until all that are wanted have come."""
    kinds = []

    def complete():
        kinds.extend(event.kind for event in pool.events())
        return wanted <= set(kinds)

    until(complete)
    return kinds


def machinery(others):
    """Process ids of broker and template of the one pool that is not among the others."""
    chain, at = [], os.getpid()
    for _ in range(3):  # stub, broker, template: each has one child that is the oldest
        at = min(pid for pid in descendants(os.getpid()) - others if parent(pid) == at)
        chain.append(at)
    return chain[1], chain[2]


def parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def test_events_that_nobody_takes_are_bounded():
    policy = SandboxPolicy(num_workers=1, spares=1, queue=1)
    with SyncPool(policy) as pool:
        with pool.session(SOURCE, 1):
            waiting = threading.Thread(target=lambda: opened(pool).close())
            waiting.start()
            until(lambda: pool.stats()["waiting"] == 1)
            for _ in range(4096 + 10):
                with pytest.raises(SandboxBusy):
                    pool.session(SOURCE, 2).__enter__()
        waiting.join()
        events = pool.events()
        assert len(events) == 4096
        assert {event.kind for event in events} == {"busy"}
        assert pool.stats()["events_dropped"] == 10
        assert pool.stats()["busy"] == 4096 + 10
