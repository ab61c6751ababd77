"""Escape by signal: nobody else is hit, and no handler, mask or timer outlives a limit."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.case import CRASHED, TIMED_OUT, Case, params

CASES = [
    Case("signal-everyone", """
        for pid in (-1, 0, 1, os.getppid(), os.getpid(), *range(2, 300)):
            for number in (0, 9, 15, 19):
                attempt(os.kill, pid, number)
        attempt(os.killpg, 0, 9)
        attempt(os.killpg, 1, 9)"""),
    Case("signal-raw-everyone", """
        info = ctypes.create_string_buffer(128)
        for pid in (-1, 0, 1, 2, 3, 1000):
            for number in (0, 6, 9, 19):
                refused(62, pid, number)                 # kill
                refused(200, pid, number)                # tkill
                refused(129, pid, number, info)          # rt_sigqueueinfo
                refused(297, pid, pid, number, info)     # rt_tgsigqueueinfo""", on="ctypes"),
    Case("signal-tgkill-to-others", """
        for pid in range(2, 2000):
            # The one call that is left for abort(): nobody else may be there to be hit.
            refused(234, pid, pid, 6, also=(3,))
            refused(234, 1, pid, 6, also=(3,))
            refused(234, pid, pid, 0, also=(3,))
        refused(234, -1, -1, 6, also=(22,)); refused(234, 0, 0, 6, also=(22,))""", on="ctypes"),
    Case("signal-tgkill-with-others-numbers", """
        for number in (1, 2, 9, 11, 15, 17, 19, 31, 34, 64, 6 | 1 << 31):
            refused(234, 1, 1, number)
        refused(234, os.getpid(), os.getpid(), 9)""", on="ctypes"),
    Case("signal-raise-kill-and-stop", """
        import _signal as signal
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGXCPU):
            attempt(signal.raise_signal, number)"""),
    Case("signal-timers", """
        buffer = ctypes.create_string_buffer(256)
        refused(37, 1); refused(38, 0, buffer, None); refused(36, 0, buffer)
        refused(222, 1, None, buffer); refused(223, 0, 0, buffer, None)
        refused(283, 1, 0); refused(286, 0, 0, buffer, None)""", on="ctypes"),
    Case("signal-descriptors-and-waits", """
        mask = (ctypes.c_uint64 * 1)(2**64 - 1)
        refused(282, -1, mask, 8); refused(289, -1, mask, 8, 0)
        refused(128, mask, None, (ctypes.c_uint64 * 2)(0, 1), 8)
        refused(130, mask, 8); refused(34); refused(127, mask, 8)""", on="ctypes"),
    Case("signal-alarm-from-python", """
        import _signal as signal
        # These report no refusal, so the proof is that nothing is ever delivered.
        hits = []
        signal.signal(signal.SIGALRM, lambda *a: hits.append(a))
        try:
            signal.alarm(1)
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        except OSError:
            pass
        time.sleep(0.05)
        if hits: passed.append(hits)"""),
    Case("signal-death-signal-and-owners", """
        for option in (1, 2, 4, 23, 24, 26, 29, 33, 35, 36, 38, 39, 40, 47, 52, 53, 59, 62, 65, 67,
                       0x59616D61, 15 | 1 << 31):
            refused(157, option, 9, 0, 0, 0)
        for fd in (0, 1):
            for command in (8, 10, 15): refused(72, fd, command, 1)""", on="ctypes"),
    Case("signal-all-ignored-and-spinning", """
        import _signal as signal
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: pass""", TIMED_OUT, "cpu|wall", ends=True),
    Case("signal-all-blocked-and-sleeping", """
        import _signal as signal
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        while True: time.sleep(1000)""", TIMED_OUT, "wall", ends=True),
    Case("signal-handler-that-loops-at-a-fault", """
        import _signal as signal
        signal.signal(signal.SIGSEGV, lambda *a: None)
        ctypes.string_at(8)""", TIMED_OUT, ends=True, on="ctypes"),
    Case("signal-fault-with-no-stack", """
        class Stack(ctypes.Structure):
            _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
        if call(131, ctypes.byref(Stack(4096, 0, 1 << 16)), None): passed.append("sigaltstack")
        stop = ctypes.cast(libc.abort, ctypes.c_void_p).value
        action = (ctypes.c_uint64 * 4)(stop, 0x0C000000, stop, 0)
        call(13, 11, action, None, 8)
        ctypes.string_at(8)""", CRASHED, "SIG", ends=True, on="ctypes"),
    Case("signal-forged-return-frame", "call(15)", CRASHED, "SIG", ends=True, on="ctypes"),
    Case("signal-abort-with-a-handler", """
        import _signal as signal
        signal.signal(signal.SIGABRT, lambda *a: None)
        os.abort()""", CRASHED, "SIG", ends=True),
    Case("signal-faulthandler-tricks", """
        import faulthandler
        class Report:
            def fileno(self): return fd
        for fd in (0, 1):
            try: faulthandler.dump_traceback(file=Report())
            except BaseException: pass
        faulthandler._sigsegv()""", ("protocol_violation", CRASHED, "over_output"), ends=True),
    Case("signal-deliver-to-own-limits", """
        # SIGXCPU at the soft limit would run a handler: the limit is not ours to set.
        refused(160, 0, (ctypes.c_uint64 * 2)(1, 1))
        refused(302, 0, 0, (ctypes.c_uint64 * 2)(1, 1), None)
        refused(302, 1, 0, (ctypes.c_uint64 * 2)(1, 1), None)
        refused(302, 2, 0, None, None, also=(3,))""",
        on="ctypes"),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_escape_by_signal(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)
