"""Escape by code: new programs, machine code, other call tables; the filter stays the same."""

from collections.abc import Callable
from pathlib import Path

import pytest

from spade_async.types import Reply
from tests.attacks.arena import Arenas, descendants
from tests.attacks.case import (
    CRASHED,
    EXCEPTION,
    FINISHED,
    OVER_MEMORY,
    REFUSED,
    TIMED_OUT,
    Case,
    params,
)

WORKS = """
def run_code(code):
    # Whether machine code can be made to run: returns its result, or raises.
    libc.mmap.restype = ctypes.c_void_p
    for how in (0x22, 0x122, 0x62, 0x8022, 0x100022, 0x40022):
        address = libc.mmap(None, ctypes.c_size_t(4096), 7, how, -1, ctypes.c_long(0))
        if address not in (None, 2**64 - 1):
            ctypes.memmove(address, code, len(code))
            return ctypes.CFUNCTYPE(ctypes.c_long)(address)()
    raise PermissionError("no executable memory")
"""

GADGETS = """
def text_of(symbol):
    # Readable pages of code around a symbol, found without side effects (see test_escape_proc).
    place = ctypes.cast(symbol, ctypes.c_void_p).value & ~4095
    def readable(page):
        ctypes.set_errno(0)
        how, size = ctypes.c_long(99), ctypes.c_long(8)
        libc.syscall(ctypes.c_long(14), how, ctypes.c_void_p(page), None, size)
        return ctypes.get_errno() != 14
    start = end = place
    while place - start < 1 << 20 and readable(start - 4096): start -= 4096
    while end - place < 1 << 20 and readable(end): end += 4096
    return start, ctypes.string_at(start, end - start)
def gadget(*codes):
    for symbol in (libc.abort, ctypes.pythonapi.Py_Exit, libc.qsort):
        start, text = text_of(symbol)
        for code in codes:
            at = text.find(code)
            if at >= 0: return start + at
    return None
"""

CASES = [
    Case("exec-python-calls", """
        for name in ("/bin/sh", "/proc/self/exe", "/bin/true", "sh"):
            attempt(os.execv, name, [name])
            attempt(os.execve, name, [name], {})
        for fd in (0, 1):
            attempt(os.execve, fd, ["x"], {}) if os.execve in os.supports_fd else None"""),
    Case("exec-system-and-popen",
         "os.system('id')\nimport subprocess", EXCEPTION, "ModuleNotFound"),
    Case("exec-memfd-and-execveat", """
        refused(319, b"x", 0); refused(319, b"x", 0x10); refused(319, b"x", 3); refused(447, 0)
        for fd in (0, 1, -100):
            refused(322, fd, b"", None, None, 0x1000); refused(322, fd, b"/bin/sh", None, None, 0)
        refused(59, b"/bin/sh", None, None)""", on="ctypes"),
    Case("exec-new-executable-memory", """
        for protection in (4, 5, 6, 7, 4 | 1 << 24, 7 | 1 << 33):
            for flags in (0x22, 0x122, 0x8022, 0x40, 0x62):
                refused(9, 0, 4096, protection, flags, -1, 0)
        page = ctypes.create_string_buffer(8192)
        place = (ctypes.addressof(page) + 4095) & ~4095
        for protection in (4, 5, 7, 7 | 1 << 25):
            refused(10, place, 4096, protection); refused(329, place, 4096, protection, -1)
            refused(329, place, 4096, protection, 0)
        refused(330, 0, 0); refused(453, 0, 4096, 1)""", on="ctypes"),
    Case("exec-shellcode-in-a-mapping", "run_code(b'\\xb8\\x2a\\0\\0\\0\\xc3')", EXCEPTION,
         head=WORKS, on="ctypes"),
    Case("exec-shellcode-over-a-callback", """
        # libffi keeps code of its own for callbacks: can it be written over?
        back = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 7)
        place = ctypes.cast(back, ctypes.c_void_p).value
        ctypes.memmove(place, b"\\xb8\\x2a\\0\\0\\0\\xc3", 6)
        if back() == 42: passed.append("machine code ran")""",
         (CRASHED, EXCEPTION, OVER_MEMORY), on="ctypes"),
    Case("exec-code-pages-made-writable", """
        # Allowed, but then they can never be made executable again.
        place = ctypes.cast(libc.getppid, ctypes.c_void_p).value
        call(10, place & ~4095, 4096, 3)
        ctypes.memmove(place, b"\\xb8\\x2a\\0\\0\\0\\xc3", 6)
        call(10, place & ~4095, 4096, 5)
        if libc.getppid() == 42: passed.append("machine code ran")""", CRASHED, on="ctypes"),
    Case("exec-executable-personality", """
        for persona in (0x0400000, 0x0040000, 0x0008000, 0x4000000, 0xFFFFFFFF, 8):
            refused(135, persona)
        refused(157, 65, 1, 0, 0, 0); refused(157, 66, 0, 0, 0, 0)""", on="ctypes"),
    Case("exec-x32-numbers", """
        for number in range(0, 600):
            if number not in (0, 1, 15, 60, 231):
                result = call(0x40000000 | number, 0, 0, 0, 0, 0, 0)
                if -result not in REFUSALS: passed.append((number, result))""",
         (FINISHED, REFUSED, CRASHED), on="ctypes"),
    Case("exec-numbers-with-an-upper-half", """
        for number in (57, 59, 101, 257, 41, 425):
            for high in (1 << 32, 1 << 63, -1 << 32, 0xFFFF << 48): refused(number | high)""",
        on="ctypes"),
    Case("exec-numbers-of-another-table",
         "call(1 << 30); call(1 << 31); call(-1)", (FINISHED, REFUSED), on="ctypes"),
    Case("exec-int-0x80", """
        # The 32-bit table, entered by a gadget: EAX is the number of float arguments, 2 is fork.
        place = gadget(b"\\xcd\\x80")
        if place is None:
            os.abort()
        function = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_double, ctypes.c_double)(place)
        if function(0.0, 0.0) > 0: passed.append("forked")""",
         (CRASHED, REFUSED), "SIG",
         head=GADGETS, on="ctypes", ends=True),
    Case("exec-return-oriented-fork", """
        # A stack of our own, entered by setcontext: pop rax; ret -> 57 -> syscall; ret
        pop, enter = gadget(b"\\x58\\xc3"), gadget(b"\\x0f\\x05\\xc3")
        if pop is None or enter is None:
            os.abort()
        stop = ctypes.cast(libc.abort, ctypes.c_void_p).value
        context = ctypes.create_string_buffer(2048)
        libc.getcontext(context)
        stack = (ctypes.c_uint64 * 8192)()
        middle = 4096
        stack[middle:middle + 6] = [57, enter, pop, 59, enter, stop]
        words = ctypes.cast(context, ctypes.POINTER(ctypes.c_uint64))
        words[20], words[21] = ctypes.addressof(stack) + middle * 8, pop   # RSP, RIP
        libc.setcontext(context)""", CRASHED, "SIG", head=GADGETS, on="ctypes", ends=True),
    Case("exec-return-oriented-int-0x80", """
        pop, enter = gadget(b"\\x58\\xc3"), gadget(b"\\xcd\\x80")
        if pop is None or enter is None:
            os.abort()
        context = ctypes.create_string_buffer(2048)
        libc.getcontext(context)
        stack = (ctypes.c_uint64 * 8192)()
        stack[4096:4098] = [11, enter]   # execve of the 32-bit table
        words = ctypes.cast(context, ctypes.POINTER(ctypes.c_uint64))
        words[20], words[21] = ctypes.addressof(stack) + 4096 * 8, pop
        libc.setcontext(context)""", (CRASHED, REFUSED), "SIG",
         head=GADGETS, on="ctypes", ends=True),
    Case("exec-vsyscall-page", """
        # time() and getcpu() at their fixed addresses are system calls to the filter.
        result = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(0xFFFFFFFFFF600400)(None)
        if result >= 0: passed.append(result) if False else None""",
         (FINISHED, CRASHED, REFUSED), on="ctypes"),
    Case("exec-segments-and-ports", """
        buffer = ctypes.create_string_buffer(64)
        for code in (0x1001, 0x1002, 0x1003, 0x1004, 0x1011, 0x1012, 0x1022, 0x2001, 0x4001,
                     0x5001):
            refused(158, code, buffer)
        refused(154, 0, buffer, 64); refused(154, 1, buffer, 16); refused(154, 0x11, buffer, 16)
        refused(205, buffer); refused(211, buffer); refused(172, 3); refused(173, 0, 8, 1)""",
        on="ctypes"),
    Case("exec-own-filters", """
        program = (ctypes.c_uint64 * 2)(1, 0)
        for operation in (0, 1, 2, 3):
            for flags in (0, 1, 2, 8, 16): refused(317, operation, flags, program)
        for mode in (1, 2): refused(157, 22, mode, program, 0, 0)
        refused(157, 38, 0, 0, 0, 0)
        refused(157, 21, 0, 0, 0, 0)
        refused(218, program) if False else None
        refused(444, None, 0, 1); refused(445, 0, 0, None, 0); refused(446, 0, 0)""", on="ctypes"),
    Case("exec-restart-syscall", """
        for _ in range(100):
            if call(219) not in (-4, -38, -1): passed.append("restart")""", on="ctypes"),
    Case("exec-bytecode-out-of-bounds", """
        # The classic way out of Python without ctypes: a LOAD_CONST beyond the tuple.
        import dis, types
        load, give = dis.opmap["LOAD_CONST"], dis.opmap["RETURN_VALUE"]
        def f(): return None
        for index in range(1, 256):
            start = dis.opmap.get("RESUME", 9)
            code = f.__code__.replace(
                co_code=bytes([start, 0, load, index, give, 0]), co_consts=())
            f.__code__ = code
            try: repr(type(f()))
            except Exception: pass
        import ctypes""", (CRASHED, EXCEPTION, TIMED_OUT)),
    Case("exec-marshal-garbage", """
        import marshal, random
        for seed in range(300):
            data = random.Random(seed).randbytes(64)
            for kind in b"cis(<[{uzA":
                try: marshal.loads(bytes([kind]) + data)
                except (Exception, MemoryError):
                    pass""", (FINISHED, CRASHED, "over_memory", TIMED_OUT), seen=None),
    Case("exec-robust-list-and-restartable-sequence", """
        head = (ctypes.c_uint64 * 3)()
        head[0] = ctypes.addressof(head) + 8
        head[1] = head[0]                      # a circle
        for place in (ctypes.addressof(head), 2**47, 8, -4096): call(273, place, 24)
        area = ctypes.create_string_buffer(b"\\xff" * 64, 64)
        for place in (ctypes.addressof(area), -4096, 1): call(334, place, 32, 0, 0x53053053)
        call(231, 0)""", CRASHED, "left by itself", on="ctypes", ends=True),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_escape_by_code(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)


def test_no_worker_has_memory_that_is_shared_or_both_writable_and_executable(
    arenas: Arenas,
) -> None:
    arena = arenas.get("ctypes")
    looked = 0
    for pid in (arena.stub, *descendants(arena.stub)):
        try:
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        except PermissionError:
            continue  # an unprivileged host may not look into what cannot be dumped
        for line in lines:
            permissions = line.split()[1]
            assert not ("w" in permissions and "x" in permissions), line
            assert "s" not in permissions or "w" not in permissions, line
        looked += 1
    assert looked > 0
