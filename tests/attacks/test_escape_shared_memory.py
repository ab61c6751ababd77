"""Escape by shared memory: two workers find no place to meet, and none reaches the host's."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.arena import MARK, MARK_KEY, Arenas
from tests.attacks.case import EXCEPTION, FINISHED, Case, params

CASES = [
    Case("shared-system-v", f"""
        for key in ({MARK_KEY}, 0):
            for flags in (0o1666, 0o3666, 0o666):
                refused(29, key, 4096, flags); refused(64, key, 1, flags); refused(68, key, flags)
        buffer = ctypes.create_string_buffer(256)
        for number in range(64):
            refused(30, number, None, 0)
            refused(31, number, 2, buffer)
            refused(66, number, 0, 12, 0)
            refused(65, number, buffer, 1); refused(69, number, buffer, 1, 0o4000)
            refused(70, number, buffer, 1, 0, 0o4000); refused(71, number, 2, buffer)
        refused(220, 0, buffer, 1, None); refused(67, None)""", on="ctypes"),
    Case("shared-message-queues", f"""
        for name in (b"{MARK}", b"/{MARK}"):
            refused(240, name, 0o102, 0o666, None); refused(241, name)
        refused(242, 0, b"x", 1, 0, None); refused(243, 0, b"x", 1, None, None)
        refused(244, 0, None); refused(245, 0, None, None)""", on="ctypes"),
    Case("shared-mappings", """
        for flags in (0x21, 0x31, 0x8021, 0x23, 0x2021, 0x80023, 0x61, 1, 3, 0x21 | 1 << 40):
            for protection in (0, 1, 3):
                for fd in (-1, 0, 1): refused(9, 0, 4096, protection, flags, fd, 0)
        # Private ones of a descriptor do not reach the file either.
        for fd in (0, 1):
            refused(9, 0, 4096, 3, 2, fd, 0, also=(19, 9, 22))""", on="ctypes"),
    Case("shared-remapping-a-private-page", """
        page = ctypes.create_string_buffer(1 << 16)
        place = (ctypes.addressof(page) + 4095) & ~4095
        # Length 0 makes a second view of shared memory; with a private page the kernel refuses.
        refused(25, place, 0, 4096, 1, 0, also=(22, 14))
        refused(216, place, 4096, 0, 0, 0)
        refused(451, 0, None, None, 0)
        refused(462, place, 4096, 0)""",
        on="ctypes"),
    Case("shared-memory-objects", f"""
        libc.sem_open.restype = ctypes.c_void_p
        if libc.shm_open(b"/{MARK}", 0o102, 0o666) >= 0: passed.append("shm_open")
        if libc.sem_open(b"/{MARK}", 0o100, 0o666, 1): passed.append("sem_open")
        refused(319, b"{MARK}", 0)
        refused(447, 0)
        refused(323, 0)
        refused(323, 1)""", on="ctypes"),
    Case("shared-python-modules", "import mmap; mmap.mmap(-1, 4096)",
         EXCEPTION, "ModuleNotFoundError"),
    Case("shared-multiprocessing", "from multiprocessing import shared_memory", EXCEPTION,
         "ModuleNotFoundError"),
    Case("shared-sockets-by-family", """
        import socket
        for family in range(46):
            for kind in (1, 2, 3, 5, 1 | 0o4000):
                attempt(socket.socket, family, kind)"""),
    Case("shared-socket-pairs", """
        pair = (ctypes.c_int * 2)()
        for family in (1, 2, 16, 40):
            for kind in (1, 2, 5): refused(53, family, kind, 0, pair)
        refused(22, pair)
        refused(293, pair, 0)
        refused(293, pair, 0o40000)
        refused(293, pair, 0o200)""",
        on="ctypes"),
    Case("shared-abstract-names", f"""
        import socket
        for name in ("\\0{MARK}", "\\0" + "x" * 100):
            attempt(lambda: socket.socket(socket.AF_UNIX).bind(name))
            attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect(name))"""),
    Case("shared-network", """
        import socket
        for host, port in (("127.0.0.1", 22), ("169.254.169.254", 80), ("::1", 80),
                           ("10.0.0.1", 53)):
            attempt(socket.create_connection, (host, port), 0.1)
        for call in (socket.gethostbyname, lambda name: socket.getaddrinfo(name, 80)):
            attempt(call, "localhost") if False else None
            try:
                call("metadata.google.internal")
                passed.append("resolved")
            except OSError: pass"""),
    Case("shared-keys", f"""
        for ring in (-1, -2, -3, -4, -5):
            refused(248, b"user", b"{MARK}", b"x", 1, ring)
            refused(249, b"user", b"{MARK}", None, ring)
            for operation in range(0, 32): refused(250, operation, ring, 0, 0, 0)""", on="ctypes"),
    Case("shared-page-merging", """
        page = ctypes.create_string_buffer(1 << 16)
        place = (ctypes.addressof(page) + 4095) & ~4095
        # MERGEABLE, HWPOISON, SOFT_OFFLINE, REMOVE, COLD, PAGEOUT, COLLAPSE, DONTFORK, GUARD ...
        for advice in (12, 13, 100, 101, 9, 20, 21, 25, 10, 11, 16, 17, 18, 19, 24, 102):
            refused(28, place, 4096, advice); refused(28, place, 4096, advice | 1 << 40)
        refused(157, 67, 1, 0, 0, 0); refused(27, place, 4096, page)""", on="ctypes"),
    Case("shared-futexes-between-workers", """
        # A futex word in private memory is one's own whatever the flags say.
        word = ctypes.c_uint32(0)
        for operation in (1, 1 | 128, 10, 10 | 128):
            if call(202, ctypes.byref(word), operation, 1000, None, None, 0xFFFFFFFF) > 0:
                passed.append(operation)
        refused(449, None, 0, 0, None, 0); refused(454, ctypes.byref(word), 1, 1, 2)
        refused(455, ctypes.byref(word), 0, 1, 2, None, 0)
        refused(456, None, 0, 1, 1)""", on="ctypes"),
    Case("shared-file-locks", """
        for fd in (0, 1):
            for command in (5, 6, 7, 36, 37, 38, 1024, 1025):
                refused(72, fd, command, b"\\0" * 64)
            refused(73, fd, 6)""", on="ctypes"),
    Case("shared-queues-of-events", """
        pair = (ctypes.c_int * 2)()
        refused(284, 0); refused(290, 0, 0); refused(213, 8); refused(291, 0)
        refused(278, 0, None, 0, 0); refused(425, 8, ctypes.create_string_buffer(256))
        refused(426, 0, 1, 0, 0, None, 0); refused(427, 0, 0, None, 0); refused(206, 8, pair)""",
        on="ctypes"),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_escape_by_shared_memory(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)


MEET = f"""
def places():
    yield "file", lambda: open("/dev/shm/{MARK}", "a+").write("x")
    yield "environment", lambda: os.environ.setdefault("{MARK}", "1") and None
    yield "module", lambda: setattr(sys, "met", True)
    yield "shm", lambda: 1 / (call(29, {MARK_KEY}, 4096, 0o1666) < 0) and None
"""


def test_two_workers_find_no_place_to_meet(arenas: Arenas) -> None:
    """Each leaves a trace in every place it can reach; the other, alive meanwhile, looks there."""
    arena = arenas.get("ctypes")
    body = """
        for name, leave in places():
            try: leave()
            except Exception: pass
        buffer = ctypes.create_string_buffer(64)
        libc.prctl(16, buffer, 0, 0, 0)
        seen = getattr(sys, "seen_before", None), os.environ.get("NOTE"), buffer.value
        return repr(seen), 0, False, False, {}"""
    leave = """
        sys.seen_before = math.seen_before = 1
        os.environ["NOTE"] = "here"
        libc.prctl(15, b"met", 0, 0, 0)"""
    with (
        arena.session(Case("", leave, on="ctypes").source()) as one,
        arena.session(Case("", body, head=MEET, on="ctypes").source()) as two,
    ):
        for session in (one, two):
            assert session.reset().ok
        assert one.step("go").ok
        said = two.step("go")
    assert said.outcome is FINISHED, said
    seen, note, name = eval(said.observation)
    assert (seen, note) == (None, None)
    assert name != b"met"
    arena.check_at_rest()
