"""Escape by descriptor: a worker holds its own protocol and can make it into nothing else."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.case import CRASHED, FINISHED, TIMED_OUT, VIOLATION, Case, params
from tests.support.jail_steps import OPEN_DESCRIPTORS

CASES = [
    Case("fd-only-the-protocol-is-open", OPEN_DESCRIPTORS + """
if found not in ([0], [0, 1]):
    passed.append(found)"""),
    Case("fd-duplicates", """
        for fd in (0, 1):
            attempt(os.dup, fd)
            attempt(os.dup2, fd, 9)
        import socket
        attempt(socket.socket, fileno=0) if False else None
        for fd in (0, 1):
            attempt(os.get_blocking, fd) if os.get_blocking(fd) not in (True, False) else None
            attempt(os.set_blocking, fd, False)""", (FINISHED, "exception")),
    Case("fd-raw-duplicates", """
        for fd in (0, 1):
            refused(32, fd); refused(33, fd, 7); refused(292, fd, 7, 0)
            for command in (0, 1030):                   # F_DUPFD, F_DUPFD_CLOEXEC
                refused(72, fd, command, 5)
        refused(436, 10, 20, 0); refused(436, 0, 2**32 - 1, 2)  # close_range, with UNSHARE""",
        on="ctypes"),
    Case("fd-flags-owners-leases-locks", """
        # F_SETFD F_SETFL F_SETLK F_SETOWN F_SETSIG F_SETLEASE F_NOTIFY F_SETPIPE_SZ F_ADD_SEALS ...
        commands = (2, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16, 36, 37, 38, 1024, 1025, 1026, 1029, 1031,
                    1032, 1033, 1034, 1035, 1036, 1037, 1038)
        for fd in (0, 1):
            for command in commands:
                refused(72, fd, command, 1)
                refused(72, fd, command | 1 << 32, 1)   # the upper half is not looked at
            refused(73, fd, 2)                          # flock""", on="ctypes"),
    Case("fd-ioctl-on-the-protocol", """
        # TIOCSTI TIOCLINUX TIOCSCTTY TCGETS FIONBIO FIONREAD FIOASYNC SIOCATMARK SIOCGIFCONF
        # FIOSETOWN NS_GET_PARENT FS_IOC_FIEMAP FICLONE, and the upper half
        for request in (0x5412, 0x541C, 0x540E, 0x5401, 0x5421, 0x541B, 0x5452, 0x8905, 0x8912,
                        0x8901, 0xB702, 0xC020660B, 0x40049409):
            for fd in (0, 1, 2):
                refused(16, fd, request, ctypes.create_string_buffer(64))
                refused(16, fd, request | 1 << 32, ctypes.create_string_buffer(64))""",
        on="ctypes"),
    Case("fd-socket-calls-on-the-protocol", """
        buffer = ctypes.create_string_buffer(256)
        for fd in (0, 1, 2):
            refused(48, fd, 2)                          # shutdown
            refused(44, fd, b"x", 1, 0x40, None, 0)     # sendto
            refused(45, fd, buffer, 1, 0x42, None, 0)   # recvfrom
            refused(46, fd, buffer, 0x40)               # sendmsg
            refused(47, fd, buffer, 0x42)               # recvmsg
            refused(307, fd, buffer, 1, 0); refused(299, fd, buffer, 1, 0, None)
            refused(51, fd, buffer, buffer); refused(52, fd, buffer, buffer)
            refused(54, fd, 1, 16, b"1111", 4)          # setsockopt SO_PASSCRED
            refused(55, fd, 1, 17, buffer, buffer)      # getsockopt SO_PEERCRED
            refused(43, fd, None, None); refused(288, fd, None, None, 0)
            refused(49, fd, b"\\x01\\x00\\x00x", 4); refused(50, fd, 5)""", on="ctypes"),
    Case("fd-passing-a-descriptor-to-the-host", """
        class Vector(ctypes.Structure):
            _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
        class Message(ctypes.Structure):
            _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint),
                        ("iov", ctypes.c_void_p), ("iovlen", ctypes.c_size_t),
                        ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t),
                        ("flags", ctypes.c_int)]
        data = ctypes.create_string_buffer(b"x")
        vector = Vector(ctypes.addressof(data), 1)
        control = (ctypes.c_uint64 * 3)(20, 1 | 1 << 32, 0)   # SCM_RIGHTS with descriptor 0
        message = Message(None, 0, ctypes.addressof(vector), 1, ctypes.addressof(control), 24, 0)
        for fd in (0, 1, 2):
            refused(46, fd, ctypes.byref(message), 0)""", on="ctypes"),
    Case("fd-stealing-from-others", """
        for pid in (0, 1, 2, os.getppid(), os.getpid()):
            refused(434, pid, 0)                        # pidfd_open
        for fd in (0, 1, 2, 3):
            refused(438, fd, 0, 0)                      # pidfd_getfd
            refused(424, fd, 9, None, 0)                # pidfd_send_signal
            refused(308, fd, 0)                         # setns""", on="ctypes"),
    Case("fd-all-closed", "os.closerange(0, 4096)", (VIOLATION, CRASHED), ends=True),
    Case("fd-all-closed-and-hanging", "os.closerange(0, 4096)\nwhile True: pass",
         (VIOLATION, CRASHED, TIMED_OUT), ends=True),
    Case("fd-all-closed-and-sleeping", "os.closerange(0, 4096)\ntime.sleep(1000)",
         (VIOLATION, CRASHED), ends=True),
    Case("fd-positions-and-vectors", """
        for fd in (0, 1):
            refused(8, fd, 0, 0, also=(29,)); refused(17, fd, b"x" * 8, 8, 0)
            refused(18, fd, b"x", 1, 0); refused(278, fd, b"", 0, 0)
            refused(19, fd, None, 0); refused(20, fd, None, 0)
            refused(327, fd, None, 0, 0, 0); refused(328, fd, None, 0, 0, 0)""", on="ctypes"),
    Case("fd-numbers-out-of-range", """
        for fd in (-1, -100, 2**31 - 1, -2**31, 2**31, 2**63 - 1):
            for number, rest in ((0, (None, 0)), (1, (None, 0)), (3, ()), (72, (1, 0))):
                result = call(number, fd, *rest)
                if result not in (-9, -1): passed.append((number, fd, result))""", on="ctypes"),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_escape_by_descriptor(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)
