"""Deaths: of the owner, of the broker, of a template, at any moment, with workers that run.

Closing, exit and the simple kills are in `test_lifetime.py`; what the host itself does to a pool
(threads, forks, signals) is in `test_life_host.py`, thousands of sessions in `test_life_many.py`.
"""

import asyncio
import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import Pool, SandboxPolicy, SyncPool
from spade_async.types import Outcome
from tests.support.family import Family, alive, control_groups, descendants, mounts, until
from tests.support.other_user import as_other_user

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parents[2]
SEED = 20_261_130
GOOD = """
class GoodEnv:
    def reset(self, seed=None):
        self.total = 0
        return f"start {seed} {random.random():.12f}", {}
    def step(self, action):
        self.total += len(action)
        return f"{self.total} {random.random():.12f}", 0.5, False, False, {}
"""
SLEEP = "import time\nclass AEnv:\n def reset(self, seed):\n  time.sleep(10**6)\n"
POLICY = SandboxPolicy(
    num_workers=4, spares=2, wall_s_per_call=60.0, cpu_s_per_call=60.0, load_wall_s=60.0
)


def transcript(pool: SyncPool, seed: int, steps: int = 5) -> list[tuple[Outcome, str]]:
    with pool.session(GOOD, seed) as session:
        replies = [session.loaded, session.reset(), *(session.step("ab") for _ in range(steps))]
    return [(reply.outcome, reply.observation) for reply in replies]


def family() -> Family:
    """Of the pools of this process, once all of it is there."""
    seen = until(Family, lambda f: bool(f.brokers and f.templates and f.workers), 10)
    if not (seen.brokers and seen.templates and seen.workers):
        pytest.skip("no PID namespaces here: templates and workers look alike")
    return seen


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


# The owner

OWNER = """
import asyncio, sys
from spade_async.sandbox import Pool, SandboxPolicy
async def main():
    policy = SandboxPolicy(
        num_workers=64, spares=4, wall_s_per_call=600, cpu_s_per_call=600, load_wall_s=600,
        python=sys.executable,
    )
    async with Pool(policy) as pool:
        sessions = [pool.session(sys.argv[1], seed) for seed in range(64)]
        await asyncio.gather(*(session.__aenter__() for session in sessions))
        assert all(session.loaded.ok for session in sessions)
        calls = [asyncio.create_task(session.reset()) for session in sessions]
        await asyncio.sleep(0.2)
        print("ready", flush=True)
        await asyncio.gather(*calls)
asyncio.run(main())
"""


@pytest.mark.parametrize("who", ["this user", "another user"])
def test_kill_9_of_the_owner_of_64_running_workers_leaves_nothing_within_2_s(who):
    before = mounts()
    start = as_other_user() if who == "another user" else []
    command = [*start, sys.executable, "-B", "-c", OWNER, SLEEP]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "ready\n"
            members = descendants(owner.pid)
            assert len(members) >= 64 + 3
        finally:
            owner.kill()
        owner.wait()
        begun = time.monotonic()
        left = until(lambda: alive(members), lambda left: not left, 2.0)
        seconds = time.monotonic() - begun
        assert not left
        groups = until(lambda: control_groups(owner.pid), lambda g: not g, 2.0 - seconds)
        assert not groups
    assert mounts() == before
    print(f"{len(members)} processes gone within {seconds:.2f} s")


# The broker


@pytest.mark.parametrize("victim", ["stubs", "brokers"])
def test_a_killed_broker_is_a_fault_for_what_ran_and_nothing_for_what_waits(victim):
    async def main() -> None:
        policy = SandboxPolicy(num_workers=2, spares=1, wall_s_per_call=60, cpu_s_per_call=60)
        async with Pool(policy) as pool:
            asleep, idle = pool.session(SLEEP, 0), pool.session(GOOD, 1)
            await asleep.__aenter__()
            await idle.__aenter__()
            running = asyncio.create_task(asleep.reset())

            async def wait_and_play(seed: int) -> tuple[str, str]:
                async with pool.session(GOOD, seed) as session:
                    return (await session.reset()).observation, (await session.step("a")).outcome

            waiting = [asyncio.create_task(wait_and_play(seed)) for seed in (5, 6)]
            await asyncio.sleep(0.2)
            assert pool.stats()["waiting"] == 2
            kill(getattr(family(), victim)[0])
            with pytest.raises(SandboxError, match="broker"):
                await asyncio.wait_for(running, 30)
            for call in (idle.reset, lambda: idle.step("a"), idle.hint):
                with pytest.raises(SandboxError, match="broker"):
                    await call()
            served = await asyncio.wait_for(asyncio.gather(*waiting), 60)
            assert [text.split()[:2] for text, _ in served] == [["start", "5"], ["start", "6"]]
            await idle.close()
            await asleep.close()
            again = [await wait_and_play(seed) for seed in (5, 6)]
            assert again == served

    asyncio.run(main())
    assert not until(lambda: descendants(os.getpid()) & set(Family().all), lambda f: not f, 5.0)


def test_threads_that_block_on_workers_get_the_fault_when_the_broker_is_killed():
    with SyncPool(POLICY) as pool:
        expected = transcript(pool, 3)
        ends: list[BaseException | object] = []

        def block() -> None:
            try:
                with pool.session(SLEEP, 0) as session:
                    ends.append(session.reset())
            except SandboxError as fault:
                ends.append(fault)

        threads = [threading.Thread(target=block) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: pool.stats()["live"], lambda live: live == 3, 20)
        time.sleep(0.1)
        kill(family().brokers[0])
        for thread in threads:
            thread.join(60)
        assert len(ends) == 3
        assert all(isinstance(end, SandboxError) and "broker" in str(end) for end in ends), ends
        assert transcript(pool, 3) == expected
        assert pool.stats()["live"] == 0


# The template


def test_workers_outlive_their_template_and_new_ones_come_from_another():
    with SyncPool(POLICY) as pool:
        expected = transcript(pool, 3, steps=8)
        with pool.session(GOOD, 3) as session:
            replies = [session.loaded, session.reset(), *(session.step("ab") for _ in range(4))]
            old = family()
            for pid in old.templates:
                kill(pid)
            replies += [session.step("ab") for _ in range(2)]
            assert transcript(pool, 3, steps=8) == expected, "spares or the next template"
            new = until(Family, lambda f: bool(f.templates) and f.templates != old.templates, 20)
            assert new.templates
            assert not set(new.templates) & set(old.templates)
            replies += [session.step("ab") for _ in range(2)]
            for _ in range(POLICY.spares + 2):  # past all spares of the old one
                assert transcript(pool, 3, steps=8) == expected
        assert [(reply.outcome, reply.observation) for reply in replies] == expected
        assert new.brokers == old.brokers


def test_templates_are_replaced_by_count_and_age_without_a_difference():
    with SyncPool(POLICY) as pool:
        expected = [transcript(pool, seed) for seed in range(30)]
    for setting in ({"rotate_after": 4}, {"rotate_after_s": 0.4}):
        with SyncPool(dataclasses.replace(POLICY, **setting)) as pool:
            seen = set(family().templates)
            with pool.session(GOOD, 99) as long_lived:
                long_lived.reset()
                for seed in range(30):
                    assert transcript(pool, seed) == expected[seed]
                    reply = long_lived.step("a")
                    assert reply.ok, reply
                    assert reply.observation.split()[0] == str(seed + 1)
                    seen.update(Family().templates)
                    time.sleep(0.05)
            assert len(seen) >= 3, f"{setting}: {len(seen)} templates"
            assert pool.stats()["template_rotations"] >= 2
            # The old ones leave: no more than one serves and one is on its way in or out.
            assert len(until(Family, lambda f: len(f.templates) <= 2, 10).templates) <= 2


# Anybody, at any moment


def test_deaths_at_any_moment_are_never_a_hang_and_never_a_wrong_reply():
    rounds = 24
    moments = random.Random(SEED)
    policy = SandboxPolicy(
        num_workers=4, spares=2, wall_s_per_call=30, cpu_s_per_call=30, load_wall_s=30
    )
    with SyncPool(policy) as pool:
        expected = {seed: transcript(pool, seed) for seed in range(8)}
        stop = threading.Event()
        counts = {"right": 0, "fault": 0, "crashed": 0}
        wrong: list[object] = []

        def play(seed: int) -> None:
            while not stop.is_set():
                try:
                    got = transcript(pool, seed)
                except SandboxError as fault:
                    if not any(word in str(fault) for word in ("broker", "worker", "template")):
                        wrong.append(fault)
                    counts["fault"] += 1
                    time.sleep(0.01)
                    continue
                except BaseException as error:
                    wrong.append(error)
                    return
                if got == expected[seed]:
                    counts["right"] += 1
                elif Outcome.CRASHED in {outcome for outcome, _ in got}:
                    # A killed worker: right until then, and the same terminal reply after it.
                    at = [outcome for outcome, _ in got].index(Outcome.CRASHED)
                    if got[:at] != expected[seed][:at] or len(set(got[at:])) != 1:
                        wrong.append(got)
                    counts["crashed"] += 1
                else:
                    wrong.append(got)

        threads = [threading.Thread(target=play, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(rounds):
                right = counts["right"]
                time.sleep(moments.uniform(0.0, 0.15))
                kind = moments.choice(["stubs", "brokers", "templates", "templates", "workers"])
                victims = getattr(family(), kind)
                if victims:
                    kill(moments.choice(victims))
                # The pool goes on: something is right again before the next death.
                assert until(lambda: counts["right"], lambda n, r=right: n > r, 60) > right
        finally:
            stop.set()
            for thread in threads:
                thread.join(120)
        assert not any(thread.is_alive() for thread in threads), "a call hangs"
        assert not wrong, wrong[:3]
        assert transcript(pool, 5) == expected[5]
        assert pool.stats()["live"] == 0
        members = set(Family().all)
    assert not until(lambda: alive(members), lambda left: not left, 5.0)
    with SyncPool(policy):
        pass  # a start sweeps what a killed stub could not
    assert not until(lambda: control_groups(os.getpid()), lambda left: not left, 5.0)
    print(f"seed {SEED}: {rounds} deaths, {counts}")


def test_a_start_sweeps_what_dead_owners_left_and_nothing_else():
    command = [sys.executable, "-B", "-c", OWNER, SLEEP]
    with SyncPool(SandboxPolicy(num_workers=1, spares=1)) as bystander:
        own = control_groups(os.getpid())
        if not own:
            pytest.skip("no control groups here")
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "ready\n"
            members = Family(owner.pid)
            foreign = {group.parent / f"spade-{owner.pid}-notours" for group in own}
            for folder in foreign:
                folder.mkdir()
            try:
                for pid in (owner.pid, *members.stubs):  # nobody is left to tidy up
                    os.kill(pid, signal.SIGSTOP)
                for pid in (*members.stubs, owner.pid):
                    os.kill(pid, signal.SIGKILL)
                owner.wait()
                assert not until(lambda: alive(members.all), lambda left: not left, 5.0)
                assert control_groups(owner.pid) > foreign, "the case needs leavings"
                with SyncPool(SandboxPolicy(num_workers=1, spares=1)) as pool:
                    assert transcript(pool, 1)
                    assert control_groups(owner.pid) == foreign
                    assert control_groups(os.getpid()) > own
                assert control_groups(os.getpid()) == own
                assert transcript(bystander, 1)
            finally:
                for folder in foreign:
                    folder.rmdir()
