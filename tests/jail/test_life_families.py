"""Deaths and cancellation where sessions belong together: copies, batches, source templates."""

import asyncio
import os
import random
import threading

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import Pool, SandboxPolicy, SyncPool
from spade_async.types import Outcome, Reply
from tests.support.family import Family, alive, descendants, until

pytestmark = pytest.mark.timeout(300)

SEED = 1_130
POLICY = SandboxPolicy(
    num_workers=12, spares=2, wall_s_per_call=60.0, cpu_s_per_call=60.0, load_wall_s=60.0
)
COUNTER = """
class CounterEnv:
    def reset(self, seed=None):
        self.count = 0
        return f"start {seed}", {}
    def step(self, action):
        self.count += 1
        if action == "leave":
            import os
            os._exit(3)
        if action == "sleep":
            import time
            time.sleep(10**6)
        return f"{self.count} {random.random():.9f}", 0.5, False, False, {}
"""


def family() -> Family:
    seen = until(Family, lambda f: bool(f.brokers and f.templates and f.workers), 10)
    if not seen.workers:
        pytest.skip("no PID namespaces here: templates and workers look alike")
    return seen


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue


def test_a_copy_that_dies_leaves_its_family_alone_and_a_dead_first_takes_them_along():
    with SyncPool(POLICY) as pool, pool.session(COUNTER, 1, forkable=True) as first:
        first.reset()
        first.step("a")
        copies = [first.fork(seed) for seed in range(3)]
        assert [copy.step("a").observation.split()[0] for copy in copies] == ["2", "2", "2"]
        assert copies[1].step("leave").outcome is Outcome.CRASHED
        assert copies[1].step("a").outcome is Outcome.CRASHED
        assert [copies[at].step("a").observation.split()[0] for at in (0, 2)] == ["3", "3"]
        grandchild = copies[0].fork(9)
        assert grandchild.step("a").observation.split()[0] == "4"
        assert first.step("leave").outcome is Outcome.CRASHED
        for copy in (copies[0], copies[2], grandchild):
            reply = copy.step("a")
            assert reply.outcome is Outcome.CRASHED, reply
            copy.close()
        copies[1].close()
        first.close()
        assert until(lambda: pool.stats()["live"], lambda live: live == 0, 5) == 0
        with pool.session(COUNTER, 1) as session:
            assert session.reset().ok


def test_a_parent_can_be_called_as_soon_as_its_copy_is_there():
    async def main() -> None:
        async with Pool(POLICY) as pool:
            for seed in range(150):
                async with pool.session(COUNTER, seed, forkable=True) as first:
                    await first.reset()
                    async with await first.fork(seed) as copy:
                        assert (await first.step("a")).ok
                        assert (await copy.step("a")).ok

    asyncio.run(main())


def test_a_copy_of_what_is_over_answers_what_the_other_answers():
    with SyncPool(POLICY) as pool, pool.session(COUNTER, 1, forkable=True) as first:
        first.reset()
        crashed = first.step("leave")
        assert crashed.outcome is Outcome.CRASHED
        with first.fork(3) as copy, copy.fork(4) as other:
            assert copy.loaded == copy.step("a") == other.step("a") == crashed
            assert pool.step_many([(first, "a"), (copy, "a"), (other, "a")]) == [crashed] * 3
        assert first.step("a") == crashed, "closing a copy closes nothing else"

    async def main() -> None:
        async with Pool(POLICY) as pool, pool.session(COUNTER, 1, forkable=True) as first:
            await first.reset()
            crashed = await first.step("leave")
            async with await first.fork() as copy, await copy.fork(4) as other:
                assert copy.loaded == await copy.step("a") == await other.hint() == crashed
            assert await first.step("a") == crashed

    asyncio.run(main())


def test_copies_outlive_the_template_and_can_still_be_copied():
    with SyncPool(POLICY) as pool, pool.session(COUNTER, 1, forkable=True) as first:
        first.reset()
        copy = first.fork(5)
        kill(family().templates)
        assert first.step("a").observation.split()[0] == "1"
        other = copy.fork(5)
        assert copy.fork(5).step("a").observation == other.step("a").observation
        with pool.session(COUNTER, 1, forkable=True) as later:  # of the next template
            later.reset()
            assert later.fork(5).step("a").ok


def test_a_template_of_a_source_goes_with_the_broker_and_a_new_one_is_as_good():
    with SyncPool(POLICY) as pool:
        transcripts = []
        for _ in range(2):
            with pool.source_template(COUNTER) as template:
                with template.session(4) as episode:
                    transcripts.append(
                        [episode.reset(4).observation, episode.step("a").observation]
                    )
                with template.session(5) as episode:
                    episode.reset(5)
                    old = family().brokers
                    kill(old)
                    with pytest.raises(SandboxError, match="broker"):
                        episode.step("sleep")
                with pytest.raises(SandboxError, match="broker"):
                    template.session(6)
            assert until(Family, lambda f, old=old: bool(f.brokers) and f.brokers != old, 20)
        assert transcripts[0] == transcripts[1]


def test_a_batch_with_deaths_in_it_has_an_answer_for_every_entry():
    with SyncPool(POLICY) as pool:
        sessions = [pool.session(COUNTER, seed) for seed in range(8)]
        for session in sessions:
            session.__enter__()
            session.reset()
        texts = ["leave" if at % 4 == 1 else "a" for at in range(8)]
        for _ in range(2):  # the dead answer again and again
            answers = pool.step_many(zip(sessions, texts, strict=True))
            for text, answer in zip(texts, answers, strict=True):
                assert isinstance(answer, Reply)
                assert answer.outcome is (Outcome.CRASHED if text == "leave" else Outcome.FINISHED)
        timer = threading.Timer(0.3, lambda: kill(family().brokers))
        timer.start()
        answers = pool.step_many([(session, "sleep") for session in sessions])
        timer.join()
        for text, answer in zip(texts, answers, strict=True):
            if text == "leave" and isinstance(answer, Reply):
                assert answer.outcome is Outcome.CRASHED
            else:
                assert isinstance(answer, SandboxError)
                assert "broker" in str(answer)
        for session in sessions:
            session.close()
        assert pool.stats()["live"] == 0


def test_cancelling_ends_the_worker_at_once_and_gives_its_place_back():
    async def main() -> None:
        policy = SandboxPolicy(num_workers=4, spares=2, wall_s_per_call=600, cpu_s_per_call=600)
        async with Pool(policy) as pool:
            for _ in range(10):
                sessions = [pool.session(COUNTER, seed) for seed in range(4)]
                for session in sessions:
                    await session.__aenter__()
                    await session.reset()
                calls = [asyncio.create_task(session.step("sleep")) for session in sessions]
                await asyncio.sleep(0.01)
                workers = set(Family().workers)
                sessions[0].cancel()
                sessions[1].cancel()
                calls[2].cancel()
                calls[3].cancel()
                ends = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
                assert all(isinstance(end, SandboxError) for end in ends[:2]), ends
                assert all("cancelled" in str(end) for end in ends[:2]), ends
                assert all(isinstance(end, asyncio.CancelledError) for end in ends[2:]), ends
                for session in sessions:
                    with pytest.raises(SandboxError, match="cancelled"):
                        await session.step("a")
                    await session.close()
                assert pool.stats()["live"] == 0
                most = len(workers) - 4
                left = until(lambda w=workers: alive(w), lambda left, n=most: len(left) <= n, 5.0)
                assert len(left) <= most

    asyncio.run(main())


def test_deaths_at_any_moment_in_an_asyncio_pool_with_copies_and_batches():
    rounds = 24
    moments = random.Random(SEED)
    counts = {"right": 0, "fault": 0, "crashed": 0}
    wrong: list[object] = []
    details: dict[int, list[str]] = {}

    async def episode(pool: Pool, seed: int) -> list[object]:
        async with pool.session(COUNTER, seed, forkable=True) as first:
            seen: list[object] = [first.loaded, await first.reset(), await first.step("a")]
            async with await first.fork(seed + 1) as copy:
                seen += await pool.step_many([(first, "a"), (copy, "a")])
                seen.append(await copy.step("a"))
        details[seed] = [one.detail if isinstance(one, Reply) else "" for one in seen]
        return [(one.outcome, one.observation) if isinstance(one, Reply) else one for one in seen]

    async def main() -> None:
        async with Pool(POLICY) as pool:
            expected = {seed: await episode(pool, seed) for seed in range(3)}
            assert all(one[0] is Outcome.FINISHED for one in expected[0])
            is_over = False

            async def play(seed: int) -> None:
                while not is_over:
                    try:
                        got = await asyncio.wait_for(episode(pool, seed), 120)
                    except SandboxError as fault:
                        counts["fault"] += 1
                        if not any(word in str(fault) for word in ("broker", "worker")):
                            wrong.append(fault)
                        await asyncio.sleep(0.01)
                        continue
                    except BaseException as error:
                        wrong.append(error)
                        raise
                    if got == expected[seed]:
                        counts["right"] += 1
                        continue
                    faults = [isinstance(one, SandboxError) for one in got]
                    crashed = [
                        not fault and one[0] is Outcome.CRASHED
                        for one, fault in zip(got, faults, strict=True)
                    ]
                    counts["fault"] += any(faults)
                    counts["crashed"] += any(crashed)
                    right = [
                        fault or crash or one == other
                        for one, other, fault, crash in zip(
                            got, expected[seed], faults, crashed, strict=True
                        )
                    ]
                    if not all(right) or not any(faults + crashed):
                        wrong.append((details[seed], got))

            players = [asyncio.create_task(play(seed)) for seed in range(3)]
            for _ in range(rounds):
                before = counts["right"]
                await asyncio.sleep(moments.uniform(0.0, 0.15))
                kind = moments.choice(["stubs", "brokers", "templates", "workers", "workers"])
                victims = getattr(await asyncio.to_thread(Family), kind)
                kill(moments.sample(victims, min(1, len(victims))))
                await asyncio.to_thread(
                    until, lambda n=before: counts["right"] > n or bool(wrong), bool, 120
                )
                assert counts["right"] > before or wrong
            is_over = True
            await asyncio.wait_for(asyncio.gather(*players), 240)

    before = descendants(os.getpid())
    asyncio.run(main())
    assert not wrong, wrong[:3]
    assert not until(lambda: descendants(os.getpid()) - before, lambda left: not left, 5.0)
    print(f"seed {SEED}: {rounds} deaths, {counts}")
