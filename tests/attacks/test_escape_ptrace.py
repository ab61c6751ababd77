"""Escape by ptrace and its kin: no other process can be read, written, traced or compared."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.case import Case, params

CASES = [
    Case("ptrace-traceme-attach-seize", """
        for pid in (0, 1, 2, os.getppid(), os.getpid()):
            for request in (0, 1, 4, 12, 13, 16, 24, 31, 0x4200, 0x4206, 0x4207, 0x420C, 0x420E):
                refused(101, request, pid, 0, 0)""", on="ctypes"),
    Case("ptrace-memory-of-others", """
        class Vector(ctypes.Structure):
            _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
        data = ctypes.create_string_buffer(64)
        mine = Vector(ctypes.addressof(data), 64)
        for pid in (0, 1, 2, os.getppid(), os.getpid()):
            for number in (310, 311):
                refused(number, pid, ctypes.byref(mine), 1, ctypes.byref(mine), 1, 0)""",
        on="ctypes"),
    Case("ptrace-descriptors-of-others", """
        for pid in (1, 2, os.getppid(), os.getpid()):
            refused(434, pid, 0); refused(434, pid, 0o4000); refused(434, pid, 0x80)
        for fd in (0, 1): refused(438, fd, 0, 0)""", on="ctypes"),
    Case("ptrace-comparing-kernel-objects", """
        for pid in (1, 2, os.getppid()):
            for kind in range(8): refused(312, os.getpid(), pid, kind, 0, 0)""", on="ctypes"),
    Case("ptrace-advice-and-reaping", """
        for fd in (0, 1): refused(440, fd, None, 0, 4, 0); refused(448, fd, 0)""", on="ctypes"),
    Case("ptrace-futex-lists-of-others", """
        head, size = ctypes.c_void_p(), ctypes.c_size_t()
        for pid in (0, 1, 2):
            refused(274, pid, ctypes.byref(head), ctypes.byref(size))""", on="ctypes"),
    Case("ptrace-pages-of-others", """
        for pid in (0, 1, 2):
            refused(256, pid, 0, None, None); refused(279, pid, 0, None, None, None, 0)
        refused(237, 0, 4096, 0, None, 0, 0); refused(238, 0, None, 0)""", on="ctypes"),
    Case("ptrace-being-traced-or-dumped", """
        for option, value in ((4, 1), (4, 0), (0x59616D61, -1), (0x59616D61, 1), (36, 1), (3, 0)):
            refused(157, option, value, 0, 0, 0)""", on="ctypes"),
    Case("ptrace-counting-and-tracing", """
        attribute = ctypes.create_string_buffer(128)
        for pid in (-1, 0, 1):
            refused(298, attribute, pid, -1, -1, 0)
            refused(298, attribute, pid, 0, -1, 8)
        refused(321, 0, attribute, 128)
        refused(321, 5, attribute, 128)
        refused(212, 0, attribute, 8)""", on="ctypes"),
    Case("ptrace-memory-maps-by-prctl", """
        for sub in range(1, 16): refused(157, 35, sub, 4096, 0, 0)""", on="ctypes"),
    Case("ptrace-scheduling-of-others", """
        buffer = ctypes.create_string_buffer(128)
        for pid in (0, 1, 2):
            refused(142, pid, buffer); refused(144, pid, 1, buffer); refused(203, pid, 128, buffer)
            refused(314, pid, buffer, 0)
            refused(315, pid, buffer, 48, 0)
            refused(141, 0, pid, -20)
            refused(251, 1, pid, 1 << 13); refused(252, 1, pid); refused(146, 1)""", on="ctypes"),
    Case("ptrace-coredump-by-fault",
         "ctypes.string_at(1)", "crashed", "SIG", ends=True, on="ctypes"),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_escape_by_ptrace(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)
