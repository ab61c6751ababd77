"""Escape by /proc and by what the template left in memory: nothing of host or job is there."""

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from spade_async.sandbox import SyncPool
from spade_async.types import Reply
from tests.attacks.arena import policy_for
from tests.attacks.case import FINISHED, Case, environment, params

CASES = [
    Case("proc-own-entries", """
        for name in ("environ", "cmdline", "maps", "mem", "status", "stat", "auxv", "root", "cwd",
                     "exe", "fd/0", "fd/1", "fdinfo/0", "ns/pid", "ns/user", "mountinfo", "cgroup",
                     "pagemap", "syscall", "stack", "wchan", "clear_refs", "attr/current",
                     "timerslack_ns", "uid_map", "setgroups", "comm", "task", "net/unix"):
            for who in ("self", "1", "thread-self"):
                attempt(open, f"/proc/{who}/{name}", "rb")
                attempt(open, f"/proc/{who}/{name}", "r+b", buffering=0)"""),
    Case("proc-whole-machine", """
        for name in ("version", "cpuinfo", "meminfo", "mounts", "net/tcp", "net/unix", "kallsyms",
                     "kcore", "modules", "keys", "kmsg", "interrupts", "stat", "loadavg", "uptime",
                     "locks", "sysvipc/shm", "timer_list", "sched_debug", "config.gz"):
            attempt(open, "/proc/" + name, "rb")"""),
    Case("proc-every-pid", """
        for pid in range(1, 400):
            attempt(os.stat, f"/proc/{pid}")
        attempt(os.listdir, "/proc")"""),
    Case("proc-mounted-again", """
        for kind in (b"proc", b"sysfs", b"tmpfs", b"cgroup2", b"overlay", b"devpts", b"fuse"):
            refused(165, kind, b"/", kind, 0, None)
            refused(430, kind, 0)
        refused(428, -100, b"/", 1); refused(433, -100, b"/", 0); refused(432, 0, 0, 0)
        refused(429, 0, b"", -100, b"/", 4); refused(442, -100, b"/", 0, b"\\0" * 32, 32)
        refused(431, 0, 0, None, None, 0); refused(457, b"\\0" * 32, b"\\0" * 64, 64, 0)
        refused(458, b"\\0" * 32, b"\\0" * 64, 8, 0)""", on="ctypes"),
    Case("proc-machine-by-calls", """
        buffer = ctypes.create_string_buffer(4096)
        refused(99, buffer); refused(103, 3, buffer, 4096); refused(156, buffer)
        refused(136, 0, buffer); refused(137, b"/", buffer); refused(138, 0, buffer)
        refused(139, 1, b"ext4"); refused(79, buffer, 4096); refused(121, 0); refused(124, 0)
        refused(100, buffer); refused(118, buffer, buffer, buffer); refused(125, buffer, buffer)
        refused(145, 0); refused(143, 0, buffer); refused(148, 0, buffer); refused(140, 0, 0)
        refused(239, buffer, None, 0, None, 0); refused(309, buffer, buffer, None)
        refused(159, buffer); refused(305, 0, buffer); refused(96, buffer, None)""", on="ctypes"),
    Case("proc-affinity-and-usage-of-others", """
        buffer = ctypes.create_string_buffer(4096)
        for pid in range(2, 500):
            refused(204, pid, 128, buffer, also=(3,))
        refused(98, 2**31 - 1, buffer, also=(22,))""", on="ctypes"),
    Case("proc-load-users-and-names", """
        for name in ("getloadavg", "getlogin"):
            try:
                if getattr(os, name)() is not None: passed.append(name)
            except OSError: pass
        for call in (lambda: os.path.expanduser("~root"), lambda: os.getcwdb()):
            try:
                if call() not in ("~root",): passed.append(call())
            except (OSError, ImportError): pass"""),
]  # fmt: skip

MEMORY = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def readable(page):
    # An invalid "how" makes the kernel copy the mask in and then refuse it: no side effects.
    ctypes.set_errno(0)
    how, size = ctypes.c_long(99), ctypes.c_long(8)
    libc.syscall(ctypes.c_long(14), how, ctypes.c_void_p(page), None, size)
    return ctypes.get_errno() != 14
def pages(address):
    start = address & ~4095
    while readable(start - 4096): start -= 4096
    while readable(start):
        yield ctypes.string_at(start, 4096 + 64 * readable(start + 4096))
        start += 4096
def found(needles):
    libc.malloc.restype = ctypes.c_void_p
    places = [ctypes.addressof(ctypes.c_int.in_dll(libc, "optind")), id(object()), id(""), id([]),
              id(sys.modules), ctypes.c_void_p.in_dll(libc, "environ").value, libc.malloc(24),
              ctypes.cast(libc.abort, ctypes.c_void_p).value, libc.malloc(100_000)]
    held, shift = set(), bytes((byte + 1) % 256 for byte in range(256))
    for place in places:
        for page in pages(place):
            page = page.translate(shift)
            held.update(at for at, needle in enumerate(needles) if needle in page)
    return sorted(held)
"""


@pytest.mark.parametrize("case", params(CASES))
def test_escape_by_proc(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)


@pytest.fixture
def told_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncPool]:
    """A pool whose host knew a secret when it was started."""
    monkeypatch.setenv("SPADE_API_KEY", "sentinel-5be1c9")
    policy = replace(policy_for("ctypes"), wall_s_per_call=30, cpu_s_per_call=20)
    with SyncPool(policy) as pool:
        yield pool


def test_a_secret_of_the_hosts_environment_is_nowhere_in_memory(told_host: SyncPool) -> None:
    """Stack with the first environment block, heap, data of libc and arenas, read by address.

    Needles and pages are compared with every byte one higher, and the worker never sees a needle as
    it is: so the search does not find itself.
    """
    shift = bytes((byte + 1) % 256 for byte in range(256))
    texts = b"sentinel-5be1c9", b"SPADE_API_KEY", b"PYTHONHASHSEED"
    needles = [text.translate(shift) for text in texts]
    body = f"return repr(found({needles!r})), 0.0, True, False, {{}}"
    with told_host.session(environment(body, MEMORY), 1) as session:
        assert session.reset().ok
        reply = session.step("go")
    # The one that is there for all to see proves that the search finds what there is.
    assert reply.observation == "[2]", reply


def test_objects_of_the_template_name_neither_host_nor_user(told_host: SyncPool) -> None:
    body = """
        import gc
        gc.unfreeze()
        names = [needle[::-1] for needle in NEEDLES]
        seen = set()
        for thing in gc.get_objects():
            if thing is names:
                continue
            for part in gc.get_referents(thing):
                if type(part) is str:
                    seen.update(name for name in names if name in part)
        return repr(sorted(seen)), 0.0, True, False, {}"""
    needles = ["sentinel-5be1c9", "SPADE_API_KEY", os.path.abspath("tests")]
    head = f"NEEDLES = {[needle[::-1] for needle in needles]!r}"
    with told_host.session(environment(body, head), 1) as session:
        assert session.reset().ok
        reply = session.step("go")
    assert reply.outcome is FINISHED, reply
    assert reply.observation == "[]"


def test_the_name_of_the_machine_is_not_told(attack: Callable[[Case], Reply]) -> None:
    reply = attack(
        Case("proc-host-name", """
            import socket
            return repr((os.uname().nodename, socket.gethostname())), 0, True, False, {}""",
            (FINISHED, "refused_call"), seen=None)
    )  # fmt: skip
    names = {socket.gethostname(), os.uname().nodename} - {"localhost", "spade", "jail", "sandbox"}
    assert not any(name and name in reply.observation for name in names)
