"""Exhaustion of time: each call ends at its limit, wherever and however the time is spent."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.arena import Arenas
from tests.attacks.case import EXCEPTION, OVER_MEMORY, TIMED_OUT, Case, params

SPIN = "while True: pass"

CASES = [
    Case("cpu-step", SPIN, TIMED_OUT, "cpu|wall", ends=True),
    Case("cpu-import", "pass", TIMED_OUT, head=SPIN, ends=True),
    Case("cpu-class-body", "pass", TIMED_OUT, head=f"class X:\n    {SPIN}"),
    Case("cpu-metaclass", "pass", TIMED_OUT, head="""
        class M(type):
            def __prepare__(name, bases):
                while True: pass
        class X(metaclass=M): pass"""),
    Case("cpu-decorator",
         "pass", TIMED_OUT, head="@lambda f: all(not x for x in iter(int, 1))\ndef f(): pass"),
    Case("cpu-finaliser", """
        class Last:
            def __del__(self):
                while True: pass
        x = Last()
        del x""", TIMED_OUT, ends=True),
    Case("cpu-generator-close", """
        def g():
            try: yield
            finally:
                while True: pass
        x = g(); next(x); del x""", TIMED_OUT),
    Case("cpu-swallowed", """
        while True:
            try:
                while True: pass
            except BaseException: pass""", TIMED_OUT, ends=True),
    Case("cpu-one-call-of-c-sum", "sum(range(10**13))", TIMED_OUT),
    Case("cpu-one-call-of-c-power", "7 ** 10**9", (TIMED_OUT, OVER_MEMORY)),
    Case("cpu-one-call-of-c-digits", "sys.set_int_max_str_digits(0)\nint('9' * 10**7)", TIMED_OUT),
    Case("cpu-one-call-of-c-regex", "import re\nre.match(r'(a+)+$', 'a' * 64 + 'b')", TIMED_OUT),
    Case("cpu-one-call-of-c-sort", """
        class K:
            def __lt__(self, other):
                for _ in range(10**5): pass
                return False
        [K() for _ in range(10**4)].sort()""", TIMED_OUT),
    Case("cpu-one-call-of-c-find",
         "('a' * 10**6 + 'b').find('a' * 10**5 + 'c'); all(x >= 0 for x in iter(int, 1))",
         TIMED_OUT),
    Case("cpu-one-call-of-c-decimal",
         """
        import decimal
        decimal.getcontext().prec = 10**6
        decimal.Decimal(2) ** decimal.Decimal("0.5000001")""",
         (TIMED_OUT, OVER_MEMORY)),
    Case("cpu-hash-collisions", """
        class Same:
            def __hash__(self): return 1
            def __eq__(self, other): return False
        {Same(): 1 for _ in range(10**5)}""", TIMED_OUT),
    Case("cpu-iterator-without-end", "list(iter(int, 1))", (TIMED_OUT, OVER_MEMORY)),
    Case("cpu-trace-function", """
        def trace(*arguments):
            while True: pass
        sys.settrace(trace)
        (lambda: 0)()""", TIMED_OUT),
    Case("cpu-trace-function-in-the-runner", """
        # Goes off after `step` has returned, inside of what calls it.
        def trace(frame, event, argument):
            while event == "return": pass
            return trace
        frame = sys._getframe()
        while frame is not None:
            frame.f_trace, frame = trace, frame.f_back
        sys.settrace(trace)""", TIMED_OUT, ends=True),
    Case("cpu-garbage-collector-callback", """
        import gc
        def hang(phase, info):
            while True: pass
        gc.callbacks.append(hang)
        gc.collect()""", TIMED_OUT),
    Case("cpu-value-conversion", """
        class R(float):
            def __float__(self):
                while True: pass
            def __add__(self, other):
                while True: pass
        import numbers
        class N:
            def __float__(self):
                while True: pass
        numbers.Real.register(N)
        return "x", N(), False, False, {}""", TIMED_OUT, ends=True),
    Case("cpu-exception-text", """
        class E(Exception):
            def __str__(self):
                while True: pass
        raise E""", TIMED_OUT, ends=True),
    Case("cpu-yielding", "while True: call(24)", TIMED_OUT, on="ctypes"),
    Case("wall-sleep", "time.sleep(10**9)", TIMED_OUT, "wall", ends=True),
    Case("wall-lock-twice",
         "import threading\nx = threading.Lock(); x.acquire(); x.acquire()", TIMED_OUT, "wall"),
    Case("wall-event-and-queue", "import queue\nqueue.Queue().get()", TIMED_OUT, "wall"),
    Case("wall-reading-the-protocol", "os.read(0, 10**6)", (TIMED_OUT, EXCEPTION), ends=False),
    Case("wall-short-sleeps-swallowed", """
        while True:
            try: time.sleep(0.001)
            except BaseException: pass""", TIMED_OUT, "wall|cpu"),
    Case("wall-select-with-nothing",
         "call(270, 0, None, None, None, None, None)", TIMED_OUT, "wall", on="ctypes"),
    Case("wall-clock-sleep-until-the-end-of-time", """
        call(230, 0, 1, (ctypes.c_int64 * 2)(2**62, 0), None)""", TIMED_OUT, "wall", on="ctypes"),
    Case("cpu-limit-raised", """
        both = (ctypes.c_uint64 * 2)(2**64 - 1, 2**64 - 1)
        refused(160, 0, both); refused(302, 0, 0, both, None)
        while True: pass""", TIMED_OUT, on="ctypes"),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_exhaustion_of_time(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)


def test_a_slow_call_after_many_fast_ones_is_stopped(arenas: Arenas) -> None:
    arena = arenas.get("plain")
    body = "if action == 'slow':\n    while True: pass"
    with arena.session(Case("", body).source()) as session:
        assert session.reset().ok
        assert all(session.step("fast").ok for _ in range(24))
        assert session.step("slow").outcome is TIMED_OUT
    arena.check_at_rest()


def test_the_clock_of_the_worker_does_not_move_the_deadline(arenas: Arenas) -> None:
    """Python's own clocks are the attacker's to replace; the deadline is kept outside."""
    arena = arenas.get("plain")
    body = """
        time.time = time.monotonic = time.perf_counter = time.process_time = lambda: 0.0
        while True: pass"""
    with arena.session(Case("", body).source()) as session:
        assert session.reset().ok
        reply = session.step("go")
    assert reply.outcome is TIMED_OUT
    assert reply.report.cpu_s is None or reply.report.cpu_s < 5
    arena.check_at_rest()
