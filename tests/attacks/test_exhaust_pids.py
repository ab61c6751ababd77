"""Exhaustion of processes, threads, descriptors, inodes and disk: none can be had at all."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.case import CRASHED, EXCEPTION, OVER_MEMORY, REFUSED, TIMED_OUT, Case, params

CASES = [
    Case("pids-fork-bomb", "while True: os.fork()", REFUSED),
    Case("pids-fork-bomb-swallowed", """
        while True:
            try: os.fork()
            except OSError: pass""", TIMED_OUT, ends=True),
    Case("pids-forkpty-and-spawn",
         "attempt(os.forkpty); attempt(os.posix_spawn, '/bin/true', ['x'], {})"),
    Case("pids-fork-in-a-finaliser", """
        class Last:
            def __del__(self): os.fork()
        for _ in range(100): Last()"""),
    Case("pids-thread-bomb", """
        import threading
        started = 0
        for _ in range(1000):
            try:
                threading.Thread(target=time.sleep, args=(1000,)).start()
                started += 1
            except RuntimeError: pass
        if started: passed.append(started)"""),
    Case("pids-thread-bomb-below-threading", """
        import _thread
        started = 0
        for _ in range(1000):
            try:
                _thread.start_new_thread(time.sleep, (1000,))
                started += 1
            except RuntimeError: pass
        if started: passed.append(started)"""),
    Case("pids-thread-with-absurd-stack", """
        import threading
        for size in (32768, 1 << 30, 1 << 40):
            try:
                threading.stack_size(size)
                threading.Thread(target=print).start()
                passed.append(size)
            except (ValueError, RuntimeError): pass"""),
    Case("pids-thread-of-libc", """
        thread = ctypes.c_ulong()
        for _ in range(50):
            if libc.pthread_create(ctypes.byref(thread), None, libc.abort, None) == 0:
                passed.append("thread")""",
        on="ctypes"),
    Case("pids-raw-clone-in-a-loop", """
        for flags in (17, 0x3D0F00, 0x10F00, 0x4111, 0x100, 0x80000011, 0x100000000):
            for _ in range(200):
                refused(56, flags, 0, 0, 0, 0)
                refused(435, (ctypes.c_uint64 * 11)(flags), 88)""",
        on="ctypes"),
    Case("pids-executors", """
        import queue
        import concurrent.futures""", EXCEPTION, "ModuleNotFoundError"),
    Case("fds-open-in-a-loop", """
        for _ in range(2000): attempt(os.open, "/dev/null", 0)"""),
    Case("fds-pipes-and-copies", """
        for _ in range(500):
            attempt(os.pipe); attempt(os.dup, 0)
            attempt(os.memfd_create, "x"); attempt(os.eventfd, 0)"""),
    Case("fds-raw", """
        pair = (ctypes.c_int * 2)()
        for _ in range(200):
            refused(22, pair)
            refused(53, 1, 1, 0, pair)
            refused(32, 0)
            refused(284, 0)
            refused(291, 0)
            refused(283, 1, 0); refused(282, -1, pair, 8); refused(319, b"x", 0); refused(434, 1, 0)
            refused(72, 0, 0, 3)
            refused(72, 0, 1030, 3)
            refused(253)
            refused(323, 0)
            refused(441, 0, None, 0, 0, None)""",
        on="ctypes"),
    Case("fds-limit-raised", """
        both = (ctypes.c_uint64 * 2)(1 << 20, 1 << 20)
        refused(160, 7, both); refused(302, 0, 7, both, None)""", on="ctypes"),
    Case("disk-files-of-every-kind", """
        folder = os.path.dirname(action)
        for number in range(500):
            attempt(os.open, f"{folder}/{number}", os.O_CREAT | os.O_WRONLY)
            attempt(os.mkdir, f"{folder}/d{number}")
            attempt(os.symlink, "x", f"{folder}/l{number}")"""),
    Case("disk-allocation", """
        for fd in (0, 1):
            refused(285, fd, 0, 0, 1 << 40)
            refused(77, fd, 1 << 40)
            refused(74, fd)
            refused(75, fd)
            refused(277, fd, 0, 0, 0); refused(221, fd, 0, 0, 4); refused(187, fd, 0, 1 << 30)
        refused(76, b"/tmp/x", 1 << 40); refused(162)""", on="ctypes"),
    Case("disk-core-file", "ctypes.memset(8, 1, 1)", CRASHED, "SIG", on="ctypes", ends=True),
    Case("disk-standard-streams", """
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            for _ in range(2000): print("x" * 10_000, file=stream)
        sys.stdin = None
        for call in (input, lambda: sys.stdout.fileno()):
            try: passed.append(call())
            except (OSError, RuntimeError): pass"""),
    Case("disk-logging-and-warnings", """
        import warnings
        warnings.simplefilter("always")
        for number in range(2000):
            warnings.warn("x" * 1000 + str(number))""", ("finished", OVER_MEMORY)),
    Case("disk-trace-of-memory-and-faults", """
        import faulthandler
        later = lambda: faulthandler.dump_traceback_later(1, file=open(action, "w"))
        for call in (faulthandler.enable, later):
            try: call(); passed.append(call)
            except (OSError, RuntimeError, AttributeError, ValueError): pass"""),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_exhaustion_of_what_the_kernel_counts(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)
