"""`session.fork()`: what a copy has, what it shares, how families end. Both fronts."""

import asyncio
import contextlib
import os
import time

import pytest

from spade_async.errors import SandboxBusy, SandboxError
from spade_async.sandbox import Pool, SandboxPolicy
from spade_async.types import Outcome
from tests.support.both_fronts import FRONTS, Front
from tests.support.family import descendants

pytestmark = pytest.mark.timeout(120)
both = pytest.mark.parametrize("front", FRONTS)

POLICY = SandboxPolicy(
    num_workers=32, spares=1, wall_s_per_call=20.0, cpu_s_per_call=10.0, load_wall_s=20.0,
    memory_bytes=64 << 20, branches=24,
)  # fmt: skip
SOURCE = """
class WalkEnv:
    def __init__(self):
        self.path = []
    def reset(self, seed=None):
        self.path, self.rng = [], random.Random(seed)
        return "start", {}
    def step(self, action):
        if action == "die":
            import os
            os._exit(3)
        if action == "hang":
            while True: pass
        if action == "bomb":
            import os
            made = 0
            try:
                while True:
                    if os.fork() == 0:
                        while True: pass
                    made += 1
            except OSError as error:
                return f"made {made} errno {error.errno}", 0.0, False, False, {}
        if action == "children":
            import os
            for _ in range(3):
                if os.fork() == 0:
                    while True: pass
            return "three", 0.0, False, False, {}
        self.path.append(action)
        numbers = (random.random(), self.rng.random(), random.Random().random())
        return f"{self.path} {numbers}", float(len(self.path)), False, False, {}
"""
# What is drawn: from the module's generator, from one of the episode's, from one without a seed.


def opened(pool, seed=1, source=SOURCE):
    session = pool.session(source, seed, forkable=True).__enter__()
    assert session.loaded.ok, session.loaded
    assert session.reset().ok
    return session


def said(*replies):
    return [(r.outcome, r.observation, r.reward) for r in replies]


OTHERS = set()


@pytest.fixture(autouse=True)
def _others():
    """What runs before a test belongs to pools that other tests share."""
    OTHERS.clear()
    OTHERS.update(descendants(os.getpid()))


def ours():
    """Those of this test."""
    return descendants(os.getpid()) - OTHERS


def until(holds, seconds=30.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


@both
def test_a_copy_goes_on_as_the_original_does_with_its_random_state(front):
    with Front(front, POLICY) as pool:
        first = opened(pool)
        first.step("a")
        copy = first.fork()
        assert copy.loaded.ok
        assert copy.loaded.observation == ""
        ahead = said(*(first.step(word) for word in "bcd"))
        assert ahead == said(*(copy.step(word) for word in "bcd"))
        assert "['a', 'b', 'c', 'd']" in ahead[-1][1]
        assert first.step("x").observation != copy.step("y").observation  # each on its own way
        assert "'y'" not in first.step("z").observation
        assert "'x'" not in copy.step("z").observation


@both
def test_equal_seeds_make_equal_copies_and_other_seeds_others(front):
    with Front(front, POLICY) as pool:
        first = opened(pool)
        first.step("a")
        copies = [first.fork(seed) for seed in (5, 5, 6, None)]
        five, again, six, none = (said(c.step("b"), c.step("c")) for c in copies)
        assert five == again
        assert len({five[0][1], six[0][1], none[0][1]}) == 3
        assert none == said(first.step("b"), first.step("c"))
        # A reset without a seed takes the seed of the copy, as with any session.
        fresh = opened(pool, seed=6)
        assert copies[2].reset().ok
        assert said(copies[2].step("b")) == said(fresh.step("b"))


@both
def test_forks_of_forks_go_deeper_than_the_kernel_nests_domains(front):
    with Front(front, POLICY) as pool:
        line = [opened(pool)]
        for depth in range(20):
            line[-1].step(f"d{depth}")
            line.append(line[-1].fork())
            assert line[-1].loaded.ok, (depth, line[-1].loaded)
        ends = [session.step("end").observation for session in line]
        for depth, text in enumerate(ends):
            assert text.count("'d") == min(depth + 1, 20)
        assert pool.stats()["live"] == 21
        # Those between go; the last one does not notice.
        for session in line[:-1]:
            session.close()
        assert line[-1].step("on").ok
        assert line[-1].fork().step("on").ok


@both
def test_a_copy_outlives_the_session_it_was_made_from(front):
    with Front(front, POLICY) as pool:
        first = opened(pool)
        copies = [first.fork() for _ in range(3)]
        first.close()
        assert pool.stats()["live"] == 3
        assert len({copy.step("on").observation for copy in copies}) == 1
        grandchild = copies[0].fork(9)
        copies[0].close()
        assert grandchild.step("on").ok
        with pytest.raises(SandboxError, match="not open"):
            first.step("x")
        for session in (*copies[1:], grandchild):
            session.close()
        assert pool.stats()["live"] == 0


@both
@pytest.mark.parametrize(
    ("how", "outcome"), [("die", Outcome.CRASHED), ("hang", Outcome.TIMED_OUT)]
)
def test_a_family_ends_with_its_first_session_and_says_so(front, how, outcome):
    policy = SandboxPolicy(num_workers=8, wall_s_per_call=20, cpu_s_per_call=0.3)
    with Front(front, policy) as pool:
        first, other = opened(pool), opened(pool)
        copy = first.fork()
        below = copy.fork()
        assert first.step(how).outcome is outcome
        for session in (copy, below):
            for _ in range(2):
                reply = session.step("on")
                assert reply.outcome is Outcome.CRASHED
                assert reply.detail == "the session it was forked from ended"
        over = first.fork()  # its answer is the answer of what there is to copy
        assert over.loaded.outcome is outcome
        assert over.step("on").outcome is outcome
        assert other.step("on").ok  # another family
        assert pool.stats()["live"] == 1


@both
@pytest.mark.parametrize(
    ("how", "outcome"), [("die", Outcome.CRASHED), ("hang", Outcome.TIMED_OUT)]
)
def test_a_copy_that_ends_takes_nobody_with_it(front, how, outcome):
    policy = SandboxPolicy(num_workers=8, wall_s_per_call=20, cpu_s_per_call=0.3)
    with Front(front, policy) as pool:
        first = opened(pool)
        copy = first.fork()
        below = copy.fork()
        assert copy.step(how).outcome is outcome
        assert copy.step("on").outcome is outcome
        assert first.step("on").ok
        assert below.step("on").ok
        again = first.fork()
        assert again.step("on").ok
        assert pool.stats()["live"] == 3


@both
def test_a_limit_of_copies_or_workers_is_busy_and_passes(front):
    policy = SandboxPolicy(num_workers=5, spares=1, branches=2, load_wall_s=20)
    with Front(front, policy) as pool:
        first = opened(pool)
        copies = [first.fork(), first.fork()]
        with pytest.raises(SandboxBusy, match="2 branches of this one"):
            copies[0].fork()
        copies.pop().close()
        copies.append(copies[0].fork())  # of the family, whoever of it is copied
        assert copies[-1].step("on").ok
        others = [opened(pool) for _ in range(2)]
        with pytest.raises(SandboxBusy):
            others[0].fork()
        assert pool.stats()["busy"] == 2
        others.pop().close()
        assert others[0].fork().step("on").ok


@both
def test_what_cannot_be_copied_says_why(front):
    with Front(front, POLICY) as pool:
        plain = pool.session(SOURCE, 1)
        with pytest.raises(SandboxError, match="not open"):
            plain.fork()
        with plain:
            with pytest.raises(SandboxError, match="open it with forkable=True"):
                plain.fork()
            assert plain.reset().ok  # it goes on
        bad = pool.session("class AEnv:\n def __init__(self): 1 / 0\n", 1, forkable=True)
        with bad:
            copy = bad.fork()
            assert copy.loaded == bad.loaded
            assert copy.reset() == bad.loaded
        gone = opened(pool)
        gone.cancel()
        with pytest.raises(SandboxError, match="cancelled"):
            gone.fork()


@both
def test_processes_that_code_makes_stay_within_the_family(front):
    # A copy whose children hold its pipes is waited for until the wall limit.
    policy = SandboxPolicy(
        num_workers=6, spares=1, branches=4, wall_s_per_call=12, cpu_s_per_call=1
    )
    with Front(front, policy) as pool:
        before = ours()
        other, first = opened(pool), opened(pool)
        copy = first.fork()
        made = first.step("bomb").observation
        # Two of the family run, and a limit is 1 + branches; errno 11 is EAGAIN.
        assert made.endswith("errno 11")
        assert 0 < int(made.split()[1]) <= 5 - 2, made
        assert other.step("on").ok
        assert copy.step("on").ok
        refused = first.fork()
        if not refused.loaded.ok:  # else a slow machine gave time to end what was made
            assert refused.loaded.outcome in (Outcome.EXCEPTION, Outcome.TIMED_OUT)
            assert "temporarily unavailable" in refused.loaded.detail or "wall" in (
                refused.loaded.detail
            )
        else:
            refused.close()
        copy.close()
        first.close()
        until(lambda: len(ours()) <= len(before) + 2)  # the other one, and a spare
        assert other.step("on").ok
        # A copy's own end does not wait for what it has made: that ends with the family.
        first = opened(pool)
        copy = first.fork()
        assert copy.step("children").ok
        assert copy.step("hang" if front == "sync" else "die").outcome is not Outcome.FINISHED
        assert first.step("on").ok
        first.close()
        until(lambda: len(ours()) <= len(before) + 2)
    until(lambda: not ours())


@both
def test_nothing_is_left_of_a_family_when_the_pool_closes(front):
    assert not ours()
    with Front(front, POLICY) as pool:
        first = opened(pool)
        copies = [first.fork() for _ in range(4)]
        copies += [copy.fork() for copy in copies]
        assert len(ours()) >= 9
        with pytest.raises(ZeroDivisionError), first.fork():
            1 / 0  # noqa: B018
        assert pool.stats()["live"] == 9
    until(lambda: not ours())


def test_a_fork_beside_a_call_in_flight_is_refused_and_harmless():
    async def run():
        async with Pool(POLICY) as pool, pool.session(SOURCE, 1, forkable=True) as first:
            await first.reset()
            async with pool.session(SOURCE, 1, forkable=True) as busy:
                await busy.reset()
                step = asyncio.create_task(busy.step("hang"))  # surely not answered by then
                await asyncio.sleep(0)
                with pytest.raises(SandboxError, match="in flight"):
                    await busy.fork()
                busy.cancel()
                with pytest.raises(SandboxError, match="cancelled"):
                    await step
            # Asked for together: the second is refused if the first is not done; none is lost.
            both = await asyncio.gather(first.fork(), first.fork(), return_exceptions=True)
            made = [one for one in both if not isinstance(one, SandboxError)]
            assert made
            for copy in made:
                assert (await copy.step("b")).ok
                await copy.close()
            assert (await first.step("b")).ok
            # The parent can be called the moment it has been forked.
            for _ in range(30):
                async with await first.fork() as copy:
                    replies = await asyncio.gather(first.step("c"), copy.step("c"))
                    assert replies[0].observation == replies[1].observation
            # A fork that nobody waits for any more is given up; the parent lives.
            for pause in (0, 0, 0.001, 0.002):
                task = asyncio.create_task(first.fork())
                await asyncio.sleep(pause)
                task.cancel()
                (copy,) = await asyncio.gather(task, return_exceptions=True)
                if not isinstance(copy, asyncio.CancelledError):  # it was there already
                    await copy.close()
                assert await goes_on_soon(first)
            assert pool.stats()["live"] == 1

    async def goes_on_soon(session):
        for _ in range(3000):
            if await goes_on(session):
                return True
        return False

    async def goes_on(session):
        try:
            return (await session.step("d")).ok
        except SandboxError as fault:  # it is still making the copy
            if "in flight" not in str(fault):
                raise
            await asyncio.sleep(0.01)
            return False

    asyncio.run(run())
    until(lambda: not ours())


def test_a_pool_that_closes_ends_forks_with_a_fault():
    async def run():
        pool = Pool(POLICY)
        await pool.start()
        first = await pool.session(SOURCE, 1, forkable=True).__aenter__()
        await first.reset()
        fork = asyncio.create_task(first.fork())
        await asyncio.sleep(0)
        await pool.close()
        with contextlib.suppress(SandboxError):  # unless it was faster than the close
            await fork
        with pytest.raises(SandboxError, match="closed"):
            await first.fork()

    asyncio.run(run())
    until(lambda: not ours())
