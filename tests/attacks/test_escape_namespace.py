"""Escape by namespace: no call makes one, enters one, or makes a process outside of ours."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.case import EXCEPTION, REFUSED, Case, params

FLAGS = """
NAMES = dict(NS=0x20000, CGROUP=0x2000000, UTS=0x4000000, IPC=0x8000000, USER=0x10000000,
             PID=0x20000000, NET=0x40000000, TIME=0x80)
"""

CASES = [
    Case("namespace-unshare-each", """
        for flag in (*NAMES.values(), 0x7E020080, 0x200, 0x400, 0x40000, 0x10000000 | 1 << 40, 0):
            refused(272, flag)""", head=FLAGS, on="ctypes"),
    Case("namespace-clone-each", """
        for flag in (*NAMES.values(), 0x10000000 | 0x20000000, 0x7E020000):
            for extra in (17, 0, 0x8000 | 17, 0x2000, 0x4000 | 0x100, 1 << 33, 1 << 32):
                refused(56, flag | extra, 0, 0, 0, 0)""", head=FLAGS, on="ctypes"),
    Case("namespace-clone3-each", """
        # An allow-list that refuses flags in clone has been known to let clone3 pass.
        for flag in (*NAMES.values(), 0, 0x10000000 | 0x20000000, 1 << 33):
            for size in (64, 80, 88, 4096):
                arguments = (ctypes.c_uint64 * 512)(flag, 0, 0, 0, 17)
                refused(435, arguments, size)""", head=FLAGS, on="ctypes"),
    Case("namespace-processes-by-every-call", """
        refused(57); refused(58); refused(435, None, 0)
        for flags in (17, 0x8000 | 17, 0x4111, 0x100 | 17, 0x2000 | 17, 0x800000 | 17, 0):
            refused(56, flags, 0, 0, 0, 0)""", on="ctypes"),
    Case("namespace-threads-as-processes", """
        # CLONE_VM|THREAD|SIGHAND and friends, with a stack of our own
        stack = ctypes.create_string_buffer(1 << 16)
        top = (ctypes.addressof(stack) + (1 << 16)) & ~15
        for flags in (0x3D0F00, 0x10F00, 0x10900, 0x100):
            refused(56, flags, top, 0, 0, 0)""", on="ctypes"),
    Case("namespace-setns", """
        for fd in (0, 1, 2, -1):
            for flag in (*NAMES.values(), 0): refused(308, fd, flag)""", head=FLAGS, on="ctypes"),
    Case("namespace-mounts-and-roots", """
        for flags in (0, 0x1000, 0x20, 0x4000, 0x2000, 1 << 18, 1 << 19, 1 << 20):
            refused(165, b"none", b"/", b"tmpfs", flags, None)
        refused(166, b"/", 2)
        refused(166, b"/", 0)
        refused(155, b"/", b"/")
        refused(155, b".", b".")
        refused(161, b"/"); refused(161, b".."); refused(80, b"/"); refused(80, b"..")
        for fd in (0, 1): refused(81, fd)""", on="ctypes"),
    Case("namespace-names", """
        refused(170, b"evil", 4); refused(171, b"evil", 4)"""
        , on="ctypes"),
    Case("namespace-from-python", """
        for name in ("fork", "forkpty", "unshare", "setns"):
            if hasattr(os, name):
                attempt(getattr(os, name), *(() if "fork" in name else (0x10000000,)))"""),
    Case("namespace-user-map-of-another", """
        for name in ("uid_map", "gid_map", "setgroups"):
            for pid in ("self", "1"): attempt(open, f"/proc/{pid}/{name}", "w")"""),
    Case("namespace-becoming-someone", """
        buffer = ctypes.create_string_buffer(64)
        for number in (105, 106, 122, 123):  refused(number, 0, also=())
        for number in (113, 114): refused(number, 0, 0)
        for number in (117, 119): refused(number, 0, 0, 0)
        refused(116, 0, buffer); refused(125, buffer, buffer); refused(126, buffer, buffer)
        refused(109, 0, 0); refused(112)""", on="ctypes"),
    Case("namespace-becoming-someone-in-python", """
        for name in ("setuid", "setgid", "seteuid", "setegid"): attempt(getattr(os, name), 0)
        attempt(os.setresuid, 0, 0, 0); attempt(os.setresgid, 0, 0, 0); attempt(os.setgroups, [0])
        attempt(os.initgroups, "root", 0); attempt(os.setsid); attempt(os.setpgid, 0, 0)
        if os.getuid() == 0 and os.geteuid() == 0:
            # Root inside of a user namespace alone: without one capability, as the rest shows.
            attempt(os.setuid, 1)"""),
    Case("namespace-python-fork", "os.fork()", REFUSED, "PermissionError|OSError"),
    Case("namespace-python-spawn", """
        for name in ("/bin/sh", "/proc/self/exe", "sh"):
            attempt(os.posix_spawn, name, [name], {})
            attempt(os.posix_spawnp, name, [name], {})
            attempt(os.spawnv, os.P_NOWAIT, name, [name]) if False else None
        attempt(os.system, "id") if False else None
        import subprocess""", EXCEPTION, "ModuleNotFoundError"),
    Case("namespace-libc-spawn", """
        libc.popen.restype = ctypes.c_void_p
        if libc.popen(b"id", b"r"): passed.append("popen")
        if libc.system(b"id") not in (-1, 127 << 8): passed.append("system")
        if libc.daemon(0, 0) != -1: passed.append("daemon")
        pid, arguments = ctypes.c_int(), (ctypes.c_char_p * 2)(b"sh", None)
        if libc.posix_spawn(ctypes.byref(pid), b"/bin/sh", None, None, arguments, None) == 0:
            passed.append("posix_spawn")""", on="ctypes"),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_escape_by_namespace(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)
