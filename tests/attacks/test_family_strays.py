"""What the code of a family forks by itself: bounded, ended before its family, and told apart."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import SandboxPolicy, SyncPool
from tests.attacks.arena import descendants, eventually
from tests.attacks.case import OVER_MEMORY, Case
from tests.support.family import Family, until

pytestmark = pytest.mark.timeout(240)

MIB = 1 << 20
POLICY = SandboxPolicy(
    num_workers=8, spares=1, wall_s_per_call=60.0, cpu_s_per_call=30.0, load_wall_s=60.0,
    memory_bytes=48 * MIB, branches=2, imports=("ctypes",),
)  # fmt: skip
BODY = """
    what, _, count = action.partition(" ")
    for _ in range(int(count or 0)):
        if call(56, 17, 0, 0, 0, 0) == 0:
            while True: time.sleep(1)
    if what == "grow":
        self.held = bytearray(b"x") * (40 << 20)
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[SyncPool]:
    with SyncPool(POLICY) as pool:
        try:
            with pool.session(source(), 1, forkable=True):
                pass
        except SandboxError as refusal:
            pytest.skip(str(refusal))
        yield pool


def source() -> str:
    return Case("", BODY, on="fork").source()


def stub() -> int:
    stubs = until(Family, lambda f: bool(f.stubs), 10).stubs
    return stubs[-1]


def test_children_that_a_closed_copy_has_left_end_while_its_family_goes_on(pool: SyncPool) -> None:
    pool.events()
    with pool.session(source(), 1, forkable=True) as root:
        assert root.reset().ok
        time.sleep(0.1)
        before = len(descendants(stub()))
        with root.fork() as copy:
            assert copy.step("leave 1").ok
            assert len(descendants(stub())) >= before + 2
        assert eventually(lambda: len(descendants(stub())) <= before, 30)
        assert root.step("on").ok
        with root.fork() as other:
            time.sleep(2.5)  # longer than two looks
            assert other.step("on").ok, "a copy that a session has is no stray"
    assert "stray_ended" in [event.kind for event in pool.events()]


def tighten(pid: int) -> bool:
    """Leave the control group of a process 16 MiB above what it uses. Whether that can be done."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        names = {
            "memory": ("memory", "usage_in_bytes", "limit_in_bytes"),
            "": (".", "current", "max"),
        }
        if controllers not in names:
            continue
        place, used, limit = names[controllers]
        folder = Path("/sys/fs/cgroup", place, path.lstrip("/"))
        if "spade-" in path and os.access(folder / f"memory.{limit}", os.W_OK):
            most = int((folder / f"memory.{used}").read_text()) + 16 * MIB
            (folder / f"memory.{limit}").write_text(str(most))
            return True
    return False


def test_a_copy_that_the_kernel_kills_for_memory_names_the_limit() -> None:
    """A family of three may have three times what each of it may, so its group is made smaller."""
    with SyncPool(POLICY) as pool, contextlib.ExitStack() as stack:
        try:
            root = pool.session(source(), 1, forkable=True).__enter__()
        except SandboxError as refusal:
            pytest.skip(str(refusal))
        stack.callback(root.close)
        assert root.reset().ok
        with root.fork() as copy, root.fork() as other:
            below = descendants(stub())
            if not any([tighten(pid) for pid in below]):
                pytest.skip("no control group that this user may write")
            reply = copy.step("grow")
            assert reply.outcome is OVER_MEMORY, reply
            assert "the control group of its family was full" in reply.detail
            assert reply.detail.endswith(f"limit {POLICY.memory_bytes} bytes")
            assert copy.step("on") == reply
            assert other.step("on").ok, "the others of the family go on"
            assert root.step("on").ok
