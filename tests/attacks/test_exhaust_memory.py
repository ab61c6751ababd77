"""Exhaustion of memory: it ends in the attacker's own limit, whichever way it is asked for."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.arena import Arenas
from tests.attacks.case import CRASHED, EXCEPTION, FINISHED, OVER_MEMORY, TIMED_OUT, Case, params

SLOWLY = (OVER_MEMORY, TIMED_OUT)

CASES = [
    Case("memory-large-pieces", "a = []\nwhile True: a.append(bytearray(1 << 20))", OVER_MEMORY,
         ends=True),
    Case("memory-small-pieces",
         "a = []\nwhile True: a.append([object() for _ in range(1000)])", SLOWLY),
    Case("memory-one-absurd-piece", "bytearray(1 << 46)", OVER_MEMORY),
    Case("memory-doubling-text", "a = 'x'\nwhile True: a += a", OVER_MEMORY),
    Case("memory-doubling-list", "a = [0]\nwhile True: a *= 2", OVER_MEMORY),
    Case("memory-growing-dict", "a = {}\nwhile True: a[len(a)] = None", SLOWLY),
    Case("memory-interned-names-and-classes", """
        a = []
        while True:
            a.append(type(f"C{len(a)}", (), {}))
            sys.intern(f"name{len(a)}")""", SLOWLY),
    Case("memory-deep-frames", """
        sys.setrecursionlimit(10**9)
        def f(x): return f([x] * 100)
        f(0)""", (OVER_MEMORY, TIMED_OUT, CRASHED, EXCEPTION)),  # a frame without room: SystemError
    Case("memory-tracebacks", """
        kept = []
        def f(n):
            data = bytearray(4096)
            if n: f(n - 1)
            raise ValueError
        while True:
            try: f(200)
            except ValueError as error: kept.append(error)""", SLOWLY),
    Case("memory-formatting", "'{:>99999999999}'.format(1)", (OVER_MEMORY, EXCEPTION)),
    Case("memory-percent-width", "'%*d' % (2**31 - 1, 1)", (OVER_MEMORY, EXCEPTION)),
    Case("memory-product-of-ranges",
         "import itertools\nitertools.product(range(10**9), repeat=8)", OVER_MEMORY),
    Case("memory-regular-expression",
         "import re\nre.compile('(?:' * 50 + 'a{1,60000}' + '){1,60000}' * 50)",
         (OVER_MEMORY, TIMED_OUT, EXCEPTION, FINISHED)),
    Case("memory-nested-json",
         "import json\njson.loads('[' * 10**7)", (OVER_MEMORY, EXCEPTION, CRASHED)),
    Case("memory-swallowed-and-asked-again", """
        a = []
        while True:
            try: a.append(bytearray(1 << 16))
            except MemoryError: pass""", TIMED_OUT, ends=True),
    Case("memory-filled-to-the-brim-then-a-reply", """
        global kept
        kept = []
        for size in (1 << 20, 1 << 12, 1 << 9, 64):
            try:
                while True: kept.append(bytes(size))
            except MemoryError:
                pass""", (FINISHED, OVER_MEMORY, EXCEPTION, CRASHED, TIMED_OUT), seen=None),
    Case("memory-pages-populated-at-once", """
        for flags in (0x8022, 0x8022 | 0x4000, 0x22 | 0x100):
            place = call(9, 0, 1 << 30, 3, flags, -1, 0)
            if place > 0: passed.append(flags)
        if -call(9, 0, 1 << 40, 3, 0x4022, -1, 0) != 12:
            passed.append("noreserve")""", on="ctypes"),
    Case("memory-many-mappings", """
        # Each page with another protection is a structure in the kernel: that too must end.
        size = 40 << 20
        place = call(9, 0, size, 3, 0x22, -1, 0)
        made = 0
        for offset in range(0, size, 8192):
            if call(10, place + offset, 4096, 1) < 0: break
            made += 1
        if made > 65530: passed.append(made)""", on="ctypes"),
    Case("memory-heap-by-brk-and-remap", """
        top = call(12, 0)
        if call(12, top + (1 << 30)) != top: passed.append("brk")
        place = call(9, 0, 4096, 3, 0x22, -1, 0)
        if -call(25, place, 4096, 1 << 30, 1, 0) != 12: passed.append("mremap")
        page = call(9, 0, 4096, 3, 0x122, -1, 0)       # MAP_GROWSDOWN: grows by touching
        if page > 0:
            try: ctypes.memset(page - (1 << 26), 1, 1)
            except OSError: pass""", (FINISHED, CRASHED), on="ctypes"),
    Case("memory-huge-pages-by-advice", """
        place = call(9, 0, 32 << 20, 3, 0x22, -1, 0)
        call(28, place, 32 << 20, 14)
        if place > 0: ctypes.memset(place, 1, 32 << 20)"""  , on="ctypes"),
    Case("memory-every-shared-page-copied", """
        import gc
        gc.unfreeze(); gc.set_threshold(1); gc.collect()
        things = gc.get_objects()
        kept = [things, [sys.getrefcount(thing) for thing in things]]
        gc.disable()""", (FINISHED, OVER_MEMORY)),
    Case("memory-limit-raised", """
        both = (ctypes.c_uint64 * 2)(2**64 - 1, 2**64 - 1)
        for resource in range(16):
            refused(160, resource, both)
            refused(302, 0, resource, both, None)
            refused(302, 1, resource, both, both)
        if call(9, 0, 1 << 32, 3, 0x22, -1, 0) > 0: passed.append("4 GiB")""", on="ctypes"),
    Case("memory-at-load",
         "pass", OVER_MEMORY, "in source", head="big = [bytearray(1 << 20) for _ in range(1000)]"),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_exhaustion_of_memory(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)


def test_memory_of_a_finished_call_counts_in_the_next(arenas: Arenas) -> None:
    """A little more in each step: the limit is of the worker's life, not of one call."""
    arena = arenas.get("plain")
    head = "kept = []"
    with arena.session(Case("", "kept.append(bytearray(8 << 20))", head=head).source()) as session:
        assert session.reset().ok
        outcomes = [session.step("go").outcome for _ in range(12)]
    assert outcomes[0] is FINISHED
    assert outcomes[-1] is OVER_MEMORY
    arena.fresh()
    arena.check_at_rest()
