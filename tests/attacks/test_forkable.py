"""Forkable sessions: a family of workers shares its fate and its limits, and nobody else's."""

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from spade_async.errors import SandboxBusy, SandboxError
from spade_async.sandbox import SyncSession
from spade_async.types import Reply
from tests.attacks.arena import SEED, SIBLING, Arena, Arenas, descendants, eventually
from tests.attacks.case import (
    CRASHED,
    EXCEPTION,
    FINISHED,
    HELD,
    OVER_MEMORY,
    REFUSED,
    TIMED_OUT,
    VIOLATION,
    Case,
)  # fmt: skip
from tests.attacks.test_poison_protocol import FORGE

ENDED = (CRASHED, VIOLATION, TIMED_OUT, OVER_MEMORY, EXCEPTION, REFUSED)


@pytest.fixture
def arena(arenas: Arenas) -> Iterator[Arena]:
    arena = arenas.get("fork")
    try:
        with arena.pool.session(SIBLING, SEED, forkable=True):
            pass
    except SandboxError as refusal:
        if "a forkable session needs" not in str(refusal):
            raise
        pytest.skip(str(refusal))  # where it could be neither bounded nor ended, there is none
    arena.check()
    yield arena
    arena.fresh()
    arena.check_at_rest()


@contextlib.contextmanager
def family(arena: Arena, body: str, branches: int = 2) -> Iterator[list[SyncSession]]:
    """A session whose step runs `body`, and copies of it after the reset."""
    source = Case("", body, on="fork").source()
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(arena.pool.session(source, SEED, forkable=True))
        assert root.reset().ok, root.loaded
        copies = [stack.enter_context(root.fork()) for _ in range(branches)]
        yield [root, *copies]


def test_a_copy_goes_on_where_the_session_was(arena: Arena) -> None:
    with arena.pool.session(SIBLING, SEED, forkable=True) as root:
        assert root.reset().observation == arena.expected[0]
        root.step("move 0")
        with root.fork() as copy:
            replies = copy.step("move 1"), root.step("move 1")
            said = [f"{r.observation} {r.reward} {r.detail}" for r in replies]
            assert said == [arena.expected[2]] * 2


BODIES = {
    "fork-bomb": ("""
        while True:
            pid = call(56, 17, 0, 0, 0, 0)
            if pid < 0: passed.append(pid); break
            if pid == 0:
                while True: time.sleep(1)
        passed.clear()""", (FINISHED, TIMED_OUT, CRASHED)),
    "fork-bomb-without-end": (
        "while True: call(56, 17, 0, 0, 0, 0)",
        (TIMED_OUT, CRASHED, OVER_MEMORY, FINISHED, VIOLATION)),
    "children-that-leave": ("""
        for _ in range(300):
            if call(56, 17, 0, 0, 0, 0) == 0: call(231, 0)""", (FINISHED, TIMED_OUT)),
    "children-that-speak": ("""
        if call(56, 17, 0, 0, 0, 0) == 0:
            while True: send(b"late" * 100)
        time.sleep(0.1)""", (VIOLATION, "over_output")),
    "a-child-in-ones-place": ("""
        if call(56, 17, 0, 0, 0, 0) > 0: os._exit(0)""", (CRASHED, FINISHED)),
    "killing-the-others": ("""
        for pid in range(-2, 64):
            for number in (0, 6, 9, 15, 19):
                refused(62, pid, number); refused(200, pid, number); refused(234, pid, pid, number)
                refused(129, pid, number, ctypes.create_string_buffer(128))
            refused(434, pid, 0); refused(424, pid, 9, None, 0)""", (FINISHED,)),
    "reading-the-others": ("""
        for pid in range(1, 32):
            refused(101, 16, pid, 0, 0)
            refused(310, pid, None, 0, None, 0, 0)
            refused(311, pid, None, 0, None, 0, 0)
            refused(312, 1, pid, 0, 0, 0)
            refused(274, pid, ctypes.create_string_buffer(8), ctypes.create_string_buffer(8))
            attempt(open, f"/proc/{pid}/mem", "r+b")""", (FINISHED,)),
    "namespaces": ("""
        for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000,
                     0x80):
            refused(56, flag | 17, 0, 0, 0, 0); refused(272, flag)
        for flag in (0x100, 0x8000, 0x4000, 0x2000, 0x200, 0x400, 0x10000, 0x1000, 0x800000,
                     0x200000 | 0x40000):
            refused(56, flag | 17, 0, 0, 0, 0)
        for last in (0, 9, 10, 19): refused(56, last, 0, 0, 0, 0)
        refused(435, (ctypes.c_uint64 * 11)(17), 88); refused(57); refused(58)""", (FINISHED,)),
    "filters-of-ones-own": ("""
        program = ctypes.create_string_buffer(64)
        for flags in (1, 2, 4, 8, 16, 32): refused(317, 1, flags, program)
        for operation in (0, 2, 3): refused(317, operation, 0, program)
        for option in (2, 4, 8, 22, 23, 24, 35, 36, 59, 67): refused(157, option, 1, 0, 0, 0)
        for signal in (0, 6, 15, 19): refused(157, 1, signal, 0, 0, 0)""", (FINISHED,)),
    "messages-on-the-control-socket": ("""
        for fd in (0, 1, 2):
            refused(46, fd, ctypes.create_string_buffer(64), 0x40)
            refused(44, fd, b"B", 1, 0x40, None, 0)
            refused(48, fd, 2)
            refused(54, fd, 1, 16, b"1111", 4)
            refused(49, fd, b"\\1\\0\\0x", 4)
            refused(42, fd, b"\\1\\0\\0x", 4)
        os.write(2, b"B" * 10)""", (FINISHED, VIOLATION, CRASHED)),
    "control-socket-closed": ("os.close(2)", (FINISHED,)),
    "waiting-for-nobody": ("""
        for options in (0, 1, 0x40000000): call(61, -1, None, options | 1, None)
        refused(247, 0, 0, None, 4, None)""", (FINISHED,)),
    "descriptors-shuffled": (
        "call(292, 1, 0, 0); call(292, 0, 2, 0)", (FINISHED, CRASHED, VIOLATION)),
    "landlock-stacked": ("""
        for _ in range(20):
            fd = call(444, (ctypes.c_uint64 * 3)(0, 0, 3), 24, 0)
            if fd < 0: break
            call(446, fd, 0); os.close(fd)""", (FINISHED,)),
}  # fmt: skip


def bounded_step(session: SyncSession, root: SyncSession) -> Reply:
    """One attacking step; where it never comes back, the family is closed to end it."""
    replies: list[Reply] = []

    def run() -> None:
        with contextlib.suppress(SandboxError):
            replies.append(session.step("attack"))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(25)  # a starved deadline is stretched up to ten times
    hangs = thread.is_alive()
    if hangs:
        root.cancel()  # ends the copies too
        session.close()
        thread.join(20)
    assert not hangs, "the host waits for ever"
    return replies[0]


ATTACKS = [
    pytest.param(who, name, id=f"{who}-{name}") for who in ("root", "branch") for name in BODIES
]


@pytest.mark.parametrize(("who", "name"), ATTACKS)
def test_one_of_a_family_attacks(arena: Arena, name: str, who: str) -> None:
    """Strangers notice nothing; and where the attacker is a branch, neither does its family."""
    body, outcomes = BODIES[name]
    body = "if action == 'attack':\n" + "\n".join("    " + x for x in _flat(body).splitlines())
    with family(arena, body) as [root, one, two]:
        attacker, other = (root, one) if who == "root" else (one, two)
        reply = bounded_step(attacker, root)
        assert reply.outcome in outcomes, reply
        assert reply.observation in (HELD, ""), reply
        arena.check()
        if who == "branch":
            assert other.step("on").outcome is FINISHED, "a branch is no danger to its siblings"
            assert root.step("on").outcome is FINISHED
        else:
            assert other.step("on").outcome in (FINISHED, *ENDED)


def _flat(body: str) -> str:
    lines = body.strip("\n").splitlines()
    indent = min((len(x) - len(x.lstrip()) for x in lines if x.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)


def test_a_whole_family_is_gone_when_it_is_closed(arena: Arena) -> None:
    """Also processes that nobody was told of."""
    before = len(descendants(arena.stub))
    body = """
        for _ in range(3):
            if call(56, 17, 0, 0, 0, 0) == 0:
                while True: time.sleep(1)"""
    with family(arena, body) as [root, one, two]:
        for session in (root, one, two):
            assert session.step("go").outcome in (FINISHED, TIMED_OUT)
        assert len(descendants(arena.stub)) > before + 3
    assert eventually(lambda: len(descendants(arena.stub)) <= before)


def test_a_branch_may_outlive_the_first_session_but_not_its_own_end(arena: Arena) -> None:
    with contextlib.ExitStack() as stack:
        root = arena.pool.session(SIBLING, SEED, forkable=True).__enter__()
        assert root.reset().ok
        copy = stack.enter_context(root.fork())
        root.close()
        reply = copy.step("move 0")
        assert f"{reply.observation} {reply.reward} {reply.detail}" == arena.expected[1]


def test_a_branch_that_spins_is_stopped_alone(arena: Arena) -> None:
    body = "if action == 'spin':\n    while True: pass"
    with family(arena, body) as [root, one, two]:
        assert one.step("spin").outcome is TIMED_OUT
        assert two.step("on").ok
        assert root.step("on").ok


def test_a_branch_that_dies_tells_its_own_cause(arena: Arena) -> None:
    body = "if action == 'die': ctypes.string_at(8)\nif action == 'leave': os._exit(7)"
    with family(arena, body) as [root, one, two]:
        assert one.step("die").outcome is CRASHED
        assert two.step("leave").outcome is CRASHED
        assert root.step("on").ok


def test_copies_without_end_are_refused_by_the_host(arena: Arena) -> None:
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(arena.pool.session(SIBLING, SEED, forkable=True))
        assert root.reset().ok
        # The sibling and the first have a slot each.
        for _ in range(arena.policy.num_workers - 2):
            stack.enter_context(root.fork())
        for _ in range(20):
            with pytest.raises(SandboxBusy):
                root.fork()
        assert root.step("still here").ok


HOOKS = (
    "while True: pass", "os._exit(3)", "send(b'late' * 100)", "1 / 0", "time.sleep(1000)",
)  # fmt: skip


def test_hooks_of_a_fork_are_the_attackers_own(arena: Arena) -> None:
    """Code that runs in the copy before it is locked, and in the first around it."""
    for hook in HOOKS:
        for when in ("before", "after_in_child", "after_in_parent"):
            head = f"def hook():\n    {hook}\nos.register_at_fork({when}=hook)"
            source = Case("", "pass", head=head, on="fork").source()
            with arena.pool.session(source, SEED, forkable=True) as root:
                assert root.reset().ok
                try:
                    with root.fork() as copy:
                        reply = copy.loaded if not copy.loaded.ok else copy.step("on")
                    assert reply.outcome in (FINISHED, *ENDED, "over_output"), (hook, when, reply)
                except SandboxError:
                    pass
            arena.check()


TAKE = """
def take():
    data, control = ctypes.create_string_buffer(1), ctypes.create_string_buffer(64)
    vector = (ctypes.c_uint64 * 2)(ctypes.addressof(data), 1)
    ends = ctypes.addressof(vector), 1, ctypes.addressof(control), 64, 0
    libc.syscall(47, 2, (ctypes.c_uint64 * 7)(0, 0, *ends), 0)
    return [int.from_bytes(control[16 + 4 * n:20 + 4 * n], "little") for n in range(3)]
"""


def test_a_session_that_takes_the_ends_of_its_copy(arena: Arena) -> None:
    """The first keeps the copy's pipes and answers for it: the host asks the kernel who speaks."""
    body = """
        send(frame(3))
        requests, replies, own = take()
        os.write(own, b"B")
        os.write(replies, frame(4, b"", 0.0, flags=0))
        time.sleep(1000)"""
    source = Case("", body, head=FORGE + TAKE, on="fork").source()
    with arena.pool.session(source, SEED, forkable=True) as root:
        assert root.reset().ok
        assert root.step("go").observation == "forged"
        try:
            with root.fork() as copy:
                assert copy.loaded.outcome in (VIOLATION, CRASHED, TIMED_OUT), copy.loaded
        except SandboxError:
            pass
        arena.check()


def test_a_family_computes_no_longer_than_it_is_open(arena: Arena) -> None:
    """A child that nobody was told of spins: not in the account, but gone with its family."""
    body = """
        if call(56, 17, 0, 0, 0, 0) == 0:
            while True: pass"""
    before = len(descendants(arena.stub))
    with family(arena, body, branches=1) as [root, one]:
        assert root.step("go").outcome in (FINISHED, TIMED_OUT)
        assert one.step("go").outcome in (FINISHED, TIMED_OUT)
        time.sleep(0.2)
    assert eventually(lambda: len(descendants(arena.stub)) <= before)
