"""Side effects after the deadline: once the host has let go of a worker, nothing of it runs."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spade_async.types import Reply
from tests.attacks.arena import Arena, descendants, eventually
from tests.attacks.case import CRASHED, EXCEPTION, FINISHED, TIMED_OUT, VIOLATION, Case, params
from tests.attacks.test_poison_protocol import FORGE

CASES = [
    Case("after-exit-functions", """
        import atexit, threading
        def late():
            while True: send(b"late")
        atexit.register(late)
        threading._register_atexit(late) if hasattr(threading, "_register_atexit") else None"""),
    Case("after-exit-functions-run-by-exit", """
        import atexit
        atexit.register(lambda: send(b"late" * 100))
        sys.exit(0)""", EXCEPTION, "SystemExit"),
    Case("after-finalisers", """
        class Last:
            def __del__(self):
                while True: send(b"late")
        global kept
        kept = Last(); kept.itself = kept
        import builtins
        builtins.kept = [Last() for _ in range(100)]"""),
    Case("after-weak-references", """
        import weakref
        class Thing: pass
        global thing, watch
        thing = Thing()
        watch = weakref.ref(thing, lambda _: os.abort())
        weakref.finalize(thing, lambda: send(b"late" * 100))"""),
    Case("after-weak-reference-of-the-reply", """
        import weakref
        class Text(str): pass
        class Info(dict): pass
        text, info = Text("held"), Info()
        global watch
        watch = [weakref.ref(thing, lambda _: time.sleep(0)) for thing in (text, info)]
        return text, 0.0, False, False, info"""),
    Case("after-hooks", """
        sys.excepthook = sys.unraisablehook = lambda *a: send(b"late" * 100)
        import threading
        threading.excepthook = sys.excepthook
        sys.displayhook = sys.breakpointhook = sys.excepthook"""),
    Case("after-unraisable", """
        class Last:
            def __del__(self): raise ValueError
        sys.unraisablehook = lambda *a: None
        Last()"""),
    Case("after-signal-handlers", """
        import _signal as signal
        for number in range(1, 65):
            try: signal.signal(number, lambda *a: send(b"late" * 100))
            except (OSError, ValueError): pass"""),
    Case("after-threads", """
        import threading
        for daemon in (True, False):
            try:
                threading.Thread(target=lambda: send(b"late"), daemon=daemon).start()
                passed.append("thread")
            except RuntimeError: pass
        try:
            threading.Timer(0.01, os.abort).start()
            passed.append("timer")
        except RuntimeError: pass"""),
    Case("after-generators-and-coroutines", """
        global kept
        def g():
            try: yield
            finally:
                while True: pass
        kept = g(); next(kept)
        async def c():
            try: await None
            finally: os.abort()"""),
    Case("after-garbage-callbacks", """
        import gc
        gc.callbacks.append(lambda phase, info: send(b"late") if phase == "never" else None)
        gc.set_threshold(1)"""),
    Case("after-death-with-handlers", """
        import atexit, _signal as signal
        atexit.register(lambda: send(b"late" * 100))
        signal.signal(signal.SIGTERM, lambda *a: send(b"late" * 100))
        while True: pass""", TIMED_OUT, ends=True),
    Case("after-leaving",
         "import atexit\natexit.register(lambda: send(b'late'))\nos._exit(0)", CRASHED, ends=True),
    Case("after-py-finalize",
         "ctypes.pythonapi.Py_FinalizeEx()", (FINISHED, CRASHED, EXCEPTION, VIOLATION, TIMED_OUT),
         seen=None, on="ctypes"),
    Case("after-exit-of-libc", """
        import atexit
        atexit.register(lambda: send(b"late" * 100))
        libc.exit(3)""", CRASHED, on="ctypes", ends=True),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_side_effects_after_the_call(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)


def cpu_seconds(stub: int) -> dict[int, float]:
    """CPU time of each process of the pool."""
    used = {}
    for pid in descendants(stub):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            used[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return used


def test_a_worker_that_is_let_go_of_while_it_computes_is_gone(arena: Arena) -> None:
    """Its reply was forged, it spins on: closing the session ends it, not the worker's own end."""
    source = Case("", "send(frame(3))\nwhile True: pass", head=FORGE).source()
    sessions = [arena.session(source).__enter__() for _ in range(4)]
    for session in sessions:
        assert session.reset().ok
        assert session.step("go").observation == "forged"
    busy = set(descendants(arena.stub))
    for session in sessions:
        session.close()
    assert eventually(lambda: len(set(descendants(arena.stub)) & busy) <= len(busy) - 4)
    arena.check_at_rest()


def test_a_killed_worker_says_nothing_more(arena: Arena) -> None:
    """A flood is under way when the deadline falls: all later calls repeat the one reply."""
    body = "send((2000).to_bytes(4, 'little'))\nwhile True:\n    send(b'x'); time.sleep(0.05)"
    with arena.session(Case("", body).source()) as session:
        assert session.reset().ok
        reply = session.step("go")
        assert reply.outcome is TIMED_OUT
        time.sleep(0.2)
        assert session.step("again") == session.hint() == reply
    arena.check_at_rest()


def test_a_worker_does_not_compute_between_calls(arena: Arena) -> None:
    """A forged reply buys time that nobody counts: a core is taken from the trainer meanwhile."""
    source = Case("", "send(frame(3))\nwhile True: pass", head=FORGE).source()
    with arena.session(source) as session:
        assert session.reset().ok
        before = cpu_seconds(arena.stub)
        assert session.step("go").observation == "forged"

        burnt = False

        def decided() -> bool:
            nonlocal burnt
            after = cpu_seconds(arena.stub)
            burnt = any(after.get(pid, 0.0) - before[pid] > 0.5 for pid in before)
            return burnt or not before.keys() <= after.keys()  # what was ended computes no more

        eventually(decided, 5.0)
        outcome = session.step("again").outcome
    assert not burnt or outcome is VIOLATION
