"""`step_many`: order, partial failure as data, large texts, cancellation. Both fronts."""

import asyncio
import os
import signal
import threading
import time

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import Pool, SandboxPolicy, SyncPool
from spade_async.types import Outcome
from tests.jail.test_api_fork import until
from tests.support.both_fronts import FRONTS, Front

pytestmark = pytest.mark.timeout(120)
both = pytest.mark.parametrize("front", FRONTS)

SOURCE = """
class EchoEnv:
    def reset(self, seed=None):
        self.seed = seed
        return "start", {}
    def step(self, action):
        word, _, rest = action.partition(" ")
        if word == "hang":
            while True: pass
        if word == "die":
            import os
            os._exit(4)
        if word == "raise":
            raise KeyError("x")
        if word == "big":
            return str(self.seed % 10) * int(rest), 0.0, False, False, {}
        if word == "think":
            end = time.process_time() + float(rest)
            while time.process_time() < end: pass
        return f"{self.seed}:{len(action)}:{action[:9]}", 1.0, False, False, {}
""".replace("class", "import time\nclass", 1)


def opened(pool, count):
    sessions = [pool.session(SOURCE, seed).__enter__() for seed in range(count)]
    for session in sessions:
        assert session.reset().ok
    return sessions


@both
def test_answers_come_in_the_order_of_the_steps_not_of_the_workers(front):
    with Front(front, SandboxPolicy(num_workers=8, wall_s_per_call=60, cpu_s_per_call=30)) as pool:
        sessions = opened(pool, 6)
        assert pool.step_many([]) == []
        words = ["think 0.3", "b", "think 0.1", "d", "e", "f"]
        pairs = list(zip(sessions, words, strict=True))
        replies = pool.step_many(reversed(pairs) if front == "sync" else pairs[::-1])
        expected = [f"{seed}:{len(word)}:{word[:9]}" for seed, word in enumerate(words)][::-1]
        assert [reply.observation for reply in replies] == expected
        # Each has its own time, though one of them was slow.
        assert replies[-1].report.wall_s >= 0.3
        assert replies[0].report.wall_s < replies[-1].report.wall_s


@both
def test_what_fails_is_an_entry_of_its_own_and_the_others_are_right(front):
    with Front(front, SandboxPolicy(num_workers=8, wall_s_per_call=60, cpu_s_per_call=0.4)) as pool:
        sessions = opened(pool, 7)
        assert sessions[1].step("die").outcome is Outcome.CRASHED
        sessions[2].cancel()
        words = ["a", "b", "c", "hang", "die", "raise", "g"]
        replies = pool.step_many(list(zip(sessions, words, strict=True)))
        assert replies[0].observation == "0:1:a"
        assert replies[1].outcome is Outcome.CRASHED  # the answer it has given ever since
        assert isinstance(replies[2], SandboxError)
        assert "cancelled" in str(replies[2])
        assert replies[3].outcome is Outcome.TIMED_OUT
        assert "limit 0.4 s" in replies[3].detail
        assert replies[4].outcome is Outcome.CRASHED
        assert replies[5].outcome is Outcome.EXCEPTION
        assert replies[6].observation == "6:1:g"
        again = pool.step_many(list(zip(sessions, "abcdefg", strict=True)))
        outcomes = [type(r) if isinstance(r, SandboxError) else r.outcome for r in again]
        assert outcomes == [
            Outcome.FINISHED, Outcome.CRASHED, SandboxError, Outcome.TIMED_OUT, Outcome.CRASHED,
            Outcome.FINISHED, Outcome.FINISHED,
        ]  # fmt: skip
        assert pool.stats()["timed_out"] == 1  # an answer given again is no other call


@both
def test_what_cannot_be_sent_is_refused_before_anything_is(front):
    with Front(front, SandboxPolicy(num_workers=4, wall_s_per_call=60)) as pool:
        first, second = opened(pool, 2)
        before = [session.resources().bytes_in for session in (first, second)]
        with pytest.raises(ValueError, match="occurs twice"):
            pool.step_many([(first, "a"), (second, "b"), (first, "c")])
        with pytest.raises(ValueError, match="lone surrogate"):
            pool.step_many([(first, "a"), (second, "\ud800")])
        with pytest.raises(ValueError, match="at most 65536"):
            pool.step_many([(first, "a"), (second, "x" * 65537)])
        for entry in (second, (second,), (second, "b", "c"), "ab", None, ("x", "b")):
            with pytest.raises(ValueError, match="entry 1 is no session of this pool; pass pairs"):
                pool.step_many([(first, "a"), entry])
        second.close()
        with pytest.raises(SandboxError, match="not open"):
            pool.step_many([(first, "a"), (second, "b")])
        assert first.resources().bytes_in == before[0]
        assert first.step("a").ok


@both
def test_large_texts_both_ways_at_once_neither_block_nor_time_out(front):
    policy = SandboxPolicy(num_workers=64, spares=4, wall_s_per_call=30, cpu_s_per_call=2,
                           load_wall_s=60, memory_bytes=64 << 20)  # fmt: skip
    with Front(front, policy) as pool:
        sessions = opened(pool, 64)
        size = 60 << 10
        replies = pool.step_many([(session, f"big {size}") for session in sessions])
        assert [r.observation for r in replies] == [str(n % 10) * size for n in range(64)]
        replies = pool.step_many([(session, "x" * (64 << 10)) for session in sessions])
        assert [r.observation for r in replies] == [f"{n}:65536:xxxxxxxxx" for n in range(64)]
        # Answers that nobody reads because one worker is slow are not late.
        words = [f"big {size}"] * 63 + ["think 1.2"]
        replies = pool.step_many(list(zip(sessions, words, strict=True)))
        assert all(reply.ok for reply in replies)


@both
def test_a_worker_that_reads_no_more_holds_up_nobody_else(front):
    """Its pipe is full, so that writing to it would wait; the next is not late for it."""
    policy = SandboxPolicy(num_workers=4, spares=1, wall_s_per_call=1.5, cpu_s_per_call=1.5)
    deaf = """
import os, struct, time
class DeafEnv:
    def reset(self, seed=None):
        return "start", {}
    def step(self, action):
        body = struct.pack("<IBBdI", 3, 0, 4, 0.5, 0)
        os.write(1, struct.pack("<I", len(body)) + body)  # the answer, before it is one
        time.sleep(50)
"""
    with Front(front, policy) as pool:
        liar = pool.session(deaf, 1).__enter__()
        assert liar.reset().ok
        assert liar.step("a").reward == 0.5
        (honest,) = opened(pool, 1)
        replies = pool.step_many([(liar, "x" * (64 << 10)), (honest, "b")])
        assert replies[0].outcome is not Outcome.FINISHED
        assert replies[1].observation == "0:1:b"
        assert replies[1].report.wall_s < 1.5


def test_a_cancelled_task_ends_exactly_the_workers_that_were_not_done():
    async def run():
        policy = SandboxPolicy(num_workers=8, wall_s_per_call=60, cpu_s_per_call=60)
        async with Pool(policy) as pool:
            sessions = [await pool.session(SOURCE, seed).__aenter__() for seed in range(4)]
            for session in sessions:
                assert (await session.reset()).ok
            done = pool.stats()["finished"]
            words = ("a", "hang", "c", "hang")
            task = asyncio.create_task(pool.step_many(list(zip(sessions, words, strict=True))))
            await asyncio.to_thread(until, lambda: pool.stats()["finished"] >= done + 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for session, word in zip(sessions, words, strict=True):
                if word == "hang":
                    with pytest.raises(SandboxError, match="cancelled"):
                        await session.step("x")
                    assert session.resources() is None
                else:
                    assert (await session.step("x")).ok
            assert pool.stats()["live"] == 2

    asyncio.run(run())


def test_ctrl_c_ends_exactly_the_workers_that_were_not_done():
    with SyncPool(SandboxPolicy(num_workers=8, wall_s_per_call=60, cpu_s_per_call=60)) as pool:
        sessions = opened(pool, 4)
        done = pool.stats()["finished"]
        words = ("a", "hang", "c", "hang")

        def press():
            while pool.stats()["finished"] < done + 2:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=press)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            pool.step_many(list(zip(sessions, words, strict=True)))
        thread.join()
        for session, word in zip(sessions, words, strict=True):
            if word == "hang":
                with pytest.raises(SandboxError, match="cancelled"):
                    session.step("x")
            else:
                assert session.step("x").ok
        assert pool.stats()["live"] == 2
