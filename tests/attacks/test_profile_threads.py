"""The threads profile: a few threads, within the limits of the call, and gone with the worker."""

import os
import time
from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.arena import Arenas, descendants, eventually
from tests.attacks.case import (
    CRASHED,
    EXCEPTION,
    FINISHED,
    OVER_MEMORY,
    OVER_OUTPUT,
    TIMED_OUT,
    VIOLATION,
    Case,
    params,
)  # fmt: skip

UNBOUNDED = "nothing limits the threads of a worker" if os.geteuid() != 0 else ""
"""An ordinary user without control groups has no limit of processes that is a worker's own."""


def threads(name: str, body: str, outcomes=FINISHED, says="", **more) -> Case:
    """A case on the threads profile."""
    head = "import threading, _thread\n" + more.pop("head", "")
    return Case(f"threads-{name}", body, outcomes, says, on="threads", head=head, **more)


CASES = [
    threads("they-work-at-all", """
        got = []
        one = threading.Thread(target=got.append, args=(1,)); one.start(); one.join()
        if got != [1]: passed.append("broken")"""),
    threads("a-thousand", """
        threading.stack_size(32768)
        started = 0
        for _ in range(1000):
            try:
                threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
                started += 1
            except (RuntimeError, MemoryError): break
        if started > 16: passed.append(started)""", finding=UNBOUNDED),
    threads("a-thousand-below-threading", """
        _thread.stack_size(32768)
        started = 0
        for _ in range(1000):
            try: _thread.start_new_thread(time.sleep, (1000,)); started += 1
            except (RuntimeError, MemoryError): break
        if started > 16: passed.append(started)""", finding=UNBOUNDED),
    threads("threads-that-start-threads", """
        def again():
            try: _thread.start_new_thread(again, ())
            except RuntimeError: pass
        for _ in range(4):
            try: _thread.start_new_thread(again, ())
            except RuntimeError: pass
        time.sleep(0.05)""", (FINISHED, TIMED_OUT)),
    threads("computing-on-every-core", """
        import hashlib
        data = bytes(1 << 20)
        def burn():
            while True: hashlib.sha256(data)
        for _ in range(6): threading.Thread(target=burn, daemon=True).start()
        time.sleep(1000)""", TIMED_OUT, "cpu|wall", ends=True),
    threads("holding-the-interpreter", """
        threading.Thread(target=lambda: sum(range(10**13)), daemon=True).start()
        time.sleep(1000)""", TIMED_OUT, ends=True),
    threads("outliving-the-step-and-computing", """
        threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()""",
        (FINISHED, TIMED_OUT, OVER_MEMORY)),
    threads("speaking-after-the-reply", """
        def late():
            time.sleep(0.02)
            while True: send(b"late" * 100)
        threading.Thread(target=late, daemon=True).start()""", (FINISHED, VIOLATION, OVER_OUTPUT)),
    threads("speaking-beside-the-reply", """
        def beside():
            while True: send(bytes(64))
        for _ in range(4): threading.Thread(target=beside, daemon=True).start()""",
        (FINISHED, VIOLATION, OVER_OUTPUT)),
    threads("leaving-in-another-thread", """
        threading.Thread(target=os._exit, args=(0,)).start()
        time.sleep(1000)""", CRASHED, ends=True),
    threads("dying-in-another-thread", """
        threading.Thread(target=lambda: ctypes.string_at(8)).start()
        time.sleep(1000)""", CRASHED, "SIG", ends=True),
    threads("raising-in-another-thread", """
        threading.excepthook = lambda *a: os._exit(3)
        threading.Thread(target=lambda: 1 / 0).start(); time.sleep(0.05)""", (CRASHED, FINISHED)),
    threads("only-one-thread-ends", "call(60, 0)", (TIMED_OUT, CRASHED), ends=True),
    threads("the-first-thread-ends-others-go-on", """
        threading.Thread(target=time.sleep, args=(1000,)).start()
        call(60, 0)""", (TIMED_OUT, CRASHED), ends=True),
    threads("deadlock", """
        a, b = threading.Lock(), threading.Lock()
        def f():
            with a: time.sleep(0.05); b.acquire()
        threading.Thread(target=f).start()
        with b: time.sleep(0.05); a.acquire()""", TIMED_OUT, "wall", ends=True),
    threads("joins-at-the-end", """
        threading._shutdown if False else None
        threading.Thread(target=time.sleep, args=(1000,)).start()
        raise SystemExit""", EXCEPTION),
    threads("exceptions-set-from-outside", """
        main = threading.main_thread().ident
        def shoot():
            number, kind = ctypes.c_ulong(main), ctypes.py_object(SystemExit)
            while True: ctypes.pythonapi.PyThreadState_SetAsyncExc(number, kind)
        threading.Thread(target=shoot, daemon=True).start()
        time.sleep(0.02)""", (FINISHED, EXCEPTION, TIMED_OUT, CRASHED), seen=None),
    threads("signals-between-threads", """
        mine = threading.get_native_id()
        for number in (0, 6, 9, 10, 15, 19):
            refused(234, os.getpid(), mine, number)
            refused(200, mine, number)
        refused(297, os.getpid(), mine, 10, ctypes.create_string_buffer(128))"""),
    threads("clone-with-other-flags", """
        stack = ctypes.create_string_buffer(1 << 16)
        top = (ctypes.addressof(stack) + (1 << 16)) & ~15
        whole = 0x3D0F00
        for flags in (17, 0x11 | 0x100, whole & ~0x100, whole & ~0x10000, whole & ~0x800,
                      *(whole | more for more in (
                          0x10000000, 0x2000, 0x8000, 0x20000, 0x40000000, 0x80, 0x4000))):
            refused(56, flags, top, 0, 0, 0)
        refused(435, (ctypes.c_uint64 * 11)(whole), 88); refused(57); refused(58)"""),
    threads("per-thread-identities", """
        def inside():
            for number in (105, 106, 112): refused(number, 0)
            refused(272, 0x400)
            refused(272, 0x200)
            refused(317, 1, 1, None)
            refused(157, 38, 1, 0, 0, 0)
            refused(126, None, None)
            refused(203, 0, 8, ctypes.create_string_buffer(8))
            refused(144, 0, 1, None)
        one = threading.Thread(target=inside); one.start(); one.join()"""),
    threads("memory-of-stacks-and-arenas", """
        kept = []
        threading.stack_size(1 << 16)
        def hoard():
            while True: kept.append(bytearray(1 << 16))
        for _ in range(4): threading.Thread(target=hoard, daemon=True).start()
        hoard()""", (OVER_MEMORY, TIMED_OUT, CRASHED, EXCEPTION)),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_threads_gone_wild(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)


def test_threads_are_gone_with_their_worker(arenas: Arenas) -> None:
    arena = arenas.get("threads")
    body = "for _ in range(5): threading.Thread(target=time.sleep, args=(1000,)).start()"
    with arena.session(Case("", body, on="threads", head="import threading").source()) as session:
        assert session.reset().ok
        assert session.step("go").ok
        assert any(text == "6" for text in descendants(arena.stub).values())
    assert eventually(lambda: "6" not in descendants(arena.stub).values())
    arena.check_at_rest()


def test_a_thread_that_speaks_between_calls_ends_the_session(arenas: Arenas) -> None:
    arena = arenas.get("threads")
    body = """
        def late():
            time.sleep(0.05); send(b"late" * 100)
        threading.Thread(target=late).start()"""
    with arena.session(Case("", body, on="threads", head="import threading").source()) as session:
        assert session.reset().ok
        assert session.step("go").ok
        time.sleep(0.5)
        assert session.step("again").outcome in (VIOLATION, OVER_OUTPUT)
    arena.check_at_rest()
