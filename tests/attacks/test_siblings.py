"""Interference between siblings: no worker's fate, speed or memory becomes another's."""

import contextlib
import threading
import time

import pytest

from spade_async.sandbox import SyncSession
from tests.attacks.arena import SEED, SIBLING, Arena, Arenas
from tests.attacks.case import FINISHED, OVER_MEMORY, TIMED_OUT, Case
from tests.attacks.test_poison_protocol import FORGE

HOGS = {
    "cpu": "while True: pass",
    "memory": "a = []\nwhile True: a.append(bytearray(1 << 16))",
    "output": "while True: print('x' * 10**6)",
    "flood": "while True: send(b'x' * 65536)",
    "crash": "os.abort()",
    "exit": "os._exit(1)",
    "close": "os.closerange(0, 64)",
    "sleep": "time.sleep(1000)",
    "yield": "import threading\nthreading.Lock().acquire(), [time.sleep(0) for _ in iter(int, 1)]",
    "collect": "import gc\nwhile True: gc.unfreeze(); gc.collect()",
}


@pytest.mark.parametrize("kind", HOGS)
def test_a_sibling_steps_on_while_another_runs_wild(arena: Arena, kind: str) -> None:
    """The same bytes while four attackers are in the middle of it, and after."""
    source = Case("", HOGS[kind]).source()

    def run() -> None:
        with arena.session(source) as session:
            session.reset()
            session.step("go")

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        arena.check()
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    arena.check()


def test_a_storm_of_dying_workers_leaves_the_pool_whole(arena: Arena) -> None:
    for body in ("os._exit(1)", "os.abort()", "send(b'x' * 99)", "os.close(0)") * 8:
        with arena.session(Case("", body).source()) as session:
            assert session.reset().ok
            session.step("go")  # one that closed its requests may still have answered
            assert session.step("again").outcome is not FINISHED
        arena.check()


def test_a_storm_of_sources_that_die_at_load(arena: Arena) -> None:
    for source in ("import os; os._exit(1)", "import os; os.abort()", "while True: pass", "1/0"):
        for _ in range(2):
            with arena.session(source) as session:
                assert not session.loaded.ok
        arena.fresh()


def test_the_same_source_and_seed_are_alike_on_workers_used_at_once(arena: Arena) -> None:
    sessions = [arena.session(SIBLING, SEED).__enter__() for _ in range(5)]
    try:
        assert {s.reset().observation for s in sessions} == {arena.expected[0]}
        for number in range(20):
            said = [session.step(f"move {number}") for session in sessions]
            texts = {f"{reply.observation} {reply.reward} {reply.detail}" for reply in said}
            assert texts == {arena.expected[number + 1]}
    finally:
        for session in sessions:
            session.close()


def test_nothing_of_an_episode_is_there_in_the_next(arena: Arena) -> None:
    """Every place in the interpreter that a fork could carry over."""
    marks = """
        import builtins, collections, functools, gc, re, warnings
        def look():
            places = builtins, collections, random, math, sys, os
            return [getattr(x, "MARK", None) for x in places] + [
                os.environ.get("MARK"), dict.get(sys.modules, "MARK"),
                "MARK" in warnings.filters, len(gc.callbacks), sys.getrecursionlimit(),
                sys.getswitchinterval(), gc.get_threshold(), len(sys.meta_path),
                json.JSONEncoder.item_separator, sys.gettrace(), sys.getprofile(),
                re.sub("a", "b", "a"), sys.intern("MARK") == "MARK"]"""
    change = """
        for x in (builtins, collections, random, math, sys, os): x.MARK = 1
        os.environ["MARK"] = "1"
        sys.modules["MARK"] = 1
        warnings.filters.append("MARK")
        gc.callbacks.append(print)
        sys.setrecursionlimit(77)
        sys.setswitchinterval(9)
        gc.set_threshold(5)
        sys.meta_path.append(1)
        json.JSONEncoder.item_separator = "?"; re.sub = lambda *a: "?" """
    body = "text = repr(look())\n" + _plain(change) + "\nreturn text, 0.0, True, False, {}"
    source = Case("", body, head=_plain(marks)).source()
    seen = set()
    for _ in range(6):
        with arena.session(source) as session:
            assert session.reset().ok, session.loaded
            reply = session.step("go")
            assert reply.ok, reply
            seen.add(reply.observation)
    assert len(seen) == 1
    assert seen.pop().startswith("[None, None, None, None, None, None, None, None, False, 0,")


def _plain(text: str) -> str:
    lines = text.strip("\n").splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[indent:] for line in lines)


def test_the_limit_of_one_is_not_spent_by_another(arena: Arena) -> None:
    """Five workers near the limit at once: it is each one's own."""
    body = "kept = getattr(self, 'kept', [])\nself.kept = kept + [bytearray(40 << 20)]"
    sessions = [arena.session(Case("", body).source()).__enter__() for _ in range(5)]
    try:
        assert all(session.reset().ok for session in sessions)
        assert [s.step("go").outcome for s in sessions] == [FINISHED] * 5
        assert {s.step("go").outcome for s in sessions} == {OVER_MEMORY}
    finally:
        for session in sessions:
            session.close()


def test_two_sessions_interleaved_in_one_thread(arena: Arena) -> None:
    """No lock of the pool is held while a call is under way."""
    hang = Case("", "time.sleep(1000)").source()
    with arena.session(hang) as slow, arena.session(SIBLING, SEED) as quick:
        assert slow.reset().ok
        results: list[object] = []
        waiting = threading.Thread(target=lambda: results.append(slow.step("go").outcome))
        waiting.start()
        assert quick.reset().observation == arena.expected[0]
        steps = 0
        while waiting.is_alive():
            assert quick.step(f"move {steps}").observation in arena.expected[steps + 1]
            steps += 1
            time.sleep(0.01)
        waiting.join()
    assert results == [TIMED_OUT]
    assert steps > 3


def test_a_worker_that_rewrites_its_interpreter_changes_no_later_one(arenas: Arenas) -> None:
    """Pages are shared with the template until written to: the writer gets a copy, nobody else."""
    arena = arenas.get("ctypes")
    body = """
        for value in range(0, 200): ctypes.memset(id(value) + 24, 0x5A, 1)
        for word in ("step", "reset", "random", "environment"):
            ctypes.memset(id(sys.intern(word)) + 48, 0x41, 2)
        ctypes.memset(id(random.Random) + 32, 0, 8)"""
    for _ in range(3):
        with arena.session(Case("", body, on="ctypes").source()) as session:
            assert session.reset().ok
            session.step("go")
        arena.fresh()
        arena.check()
    arena.check_at_rest()


def test_all_slots_taken_by_attackers_come_free(arena: Arena) -> None:
    free = arena.policy.num_workers - 1  # the sibling has one

    def hang(session: SyncSession) -> None:
        session.reset()
        session.step("go")
        session.close()

    source = Case("", "os.closerange(0, 64)\nwhile True: pass").source()
    threads = [
        threading.Thread(target=hang, args=(arena.session(source).__enter__(),))
        for _ in range(free)
    ]
    for thread in threads:
        thread.start()
    arena.fresh()  # waits for the first slot to come free
    for thread in threads:
        thread.join()


def test_a_request_nobody_reads_does_not_starve_a_batch(arena: Arena) -> None:
    """The first of a batch reads nothing any more; those after it still get their requests."""
    source = Case("", "send(frame(3)); time.sleep(1000)", head=FORGE).source()
    with contextlib.ExitStack() as stack:
        attackers = [stack.enter_context(arena.session(source)) for _ in range(2)]
        others = [stack.enter_context(arena.session(SIBLING, SEED)) for _ in range(3)]
        for session in (*attackers, *others):
            assert session.reset().ok
        for attacker in attackers:
            assert attacker.step("x").observation == "forged"
        batch = [(attacker, "x" * (64 << 10)) for attacker in attackers]  # more than a pipe holds
        batch += [(other, "move 0") for other in others]
        replies = arena.pool.step_many(batch)
        assert all(reply.outcome is TIMED_OUT for reply in replies[:2])
        said = {f"{reply.observation} {reply.reward} {reply.detail}" for reply in replies[2:]}
        assert said == {arena.expected[1]}
