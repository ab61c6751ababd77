"""The control groups of a pool: one folder per pool, a cell per worker, nothing left afterwards."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spade_async.sandbox import SandboxPolicy, SyncPool, probe_capabilities

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "class AEnv:\n def reset(self, seed): return 'ok', {}\n"
# Far longer than it takes: a busy machine is no failure. What it took is printed on failure.
PATIENCE_S = 60.0
OWNER = """
import os, sys, time
if sys.argv[2]:
    open(sys.argv[2], "w").write(str(os.getpid()))
from spade_async.sandbox import SandboxPolicy, SyncPool
pool = SyncPool(SandboxPolicy(num_workers=int(sys.argv[1]), spares=1)).__enter__()
source = "class AEnv:\\n def reset(self, seed): return 'ok', {}\\n"
sessions = [pool.session(source, 0).__enter__() for _ in range(int(sys.argv[1]))]
print("ready", flush=True)
time.sleep(600)
"""


def folders_of(owner: int) -> list[Path]:
    """Folders of the pools of a process, in every hierarchy below our own cgroup."""
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for top in {f"/sys/fs/cgroup/{names}", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"}:
            place = Path(f"{top}{path}")
            for below in (place, place.parent):
                found += below.glob(f"spade-{owner}-*")
    return sorted(set(found))


def cells_in(folders: list[Path]) -> list[Path]:
    """Folders of single workers."""
    return [cell for folder in folders for cell in folder.glob("[0-9]*")]


def text_of(file: Path) -> str:
    """Text of a file of a cell; "" if the pool has just removed the cell."""
    try:
        return file.read_text()
    except OSError:
        return ""


def wait_until_gone(owner: int) -> float:
    """Seconds until no folder of the process is left."""
    begin = time.monotonic()
    while folders_of(owner) and time.monotonic() < begin + PATIENCE_S:
        time.sleep(0.01)
    took = time.monotonic() - begin
    assert not folders_of(owner), f"still there after {took:.1f} s"
    return took


@pytest.fixture(autouse=True)
def needs_cgroups() -> None:
    layer = probe_capabilities()["layers"]["cgroup"]
    if not layer["ok"]:
        pytest.skip(f"no cgroup here: {layer['detail']}")


@pytest.fixture
def own(needs_cgroups: None) -> Callable[[], list[Path]]:
    """Folders of the pools that this test has opened in this process."""
    before = folders_of(os.getpid())  # a pool that several files share may be open
    return lambda: [folder for folder in folders_of(os.getpid()) if folder not in before]


@pytest.fixture
def start_owner() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a process with a pool and so many live workers, in a cgroup if its file is named."""
    owners = []

    def start(num_workers: int, enters: Path | None = None) -> subprocess.Popen[str]:
        owner = subprocess.Popen(
            [sys.executable, "-B", "-c", OWNER, str(num_workers), str(enters or "")],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        owners.append(owner)
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        return owner

    yield start
    for owner in owners:
        with owner:
            owner.kill()


def test_an_owner_killed_with_64_workers_leaves_no_cgroup(start_owner):
    owner = start_owner(64)
    assert len(cells_in(folders_of(owner.pid))) >= 64
    owner.kill()
    owner.wait()
    print(f"gone after {wait_until_gone(owner.pid):.3f} s")


def kill_with_its_stub(owner: subprocess.Popen[str]) -> None:
    """End a pool's owner so that nobody of it is left to tidy up."""
    stubs = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if int(path.read_text().rsplit(") ", 1)[1].split()[1]) == owner.pid
    ]
    assert stubs
    os.kill(owner.pid, signal.SIGSTOP)  # neither may tidy up after the other
    for stub in stubs:
        os.kill(stub, signal.SIGKILL)
    owner.kill()
    owner.wait()


def test_an_owner_and_its_stub_killed_together_are_swept_up_by_the_next_start(start_owner):
    owner = start_owner(2)
    kill_with_its_stub(owner)
    probe_capabilities()  # or the start of any other pool on this machine, which may be faster
    assert folders_of(owner.pid) == []


def test_what_was_killed_in_another_session_is_swept_up_from_here(start_owner):
    # A session, a service, a job: a cgroup beside ours that nobody enters again.
    line = next(
        line
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if "memory" in line.split(":")[1].split(",") or line.startswith("0::")
    )
    _, names, path = line.split(":", 2)
    tops = (f"/sys/fs/cgroup/{names}", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
    own = next(
        (Path(top + path) for top in tops if Path(top + path, "cgroup.procs").exists()), None
    )
    if own is None or not (own.parent / "cgroup.procs").exists():
        pytest.skip("our cgroup has no parent that can be seen")
    session = own.parent / f"session-{os.getpid()}"
    try:
        session.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made beside ours: {error}")
    try:
        owner = start_owner(2, session / "cgroup.procs")
        kill_with_its_stub(owner)
        assert list(session.glob(f"spade-{owner.pid}-*"))
        probe_capabilities()
        assert not list(session.glob("spade-*"))
    finally:
        session.rmdir()


def test_closing_a_pool_leaves_no_cgroup(own):
    with SyncPool(SandboxPolicy(num_workers=4, spares=2)) as pool:
        with pool.session(SOURCE, 0) as session:
            assert session.reset().ok
        assert own()
    assert own() == []


def test_two_pools_of_one_process_have_a_folder_each(own):
    policy = SandboxPolicy(num_workers=1, spares=1)
    with SyncPool(policy) as first, SyncPool(policy) as second:
        assert len({folder.name for folder in own()}) == 2
        second.close()
        assert len({folder.name for folder in own()}) == 1
        with first.session(SOURCE, 0) as session:
            assert session.reset().ok


def test_cells_are_used_again(own):
    with SyncPool(SandboxPolicy(num_workers=4, spares=2)) as pool:
        for number in range(60):
            with pool.session(SOURCE, number) as session:
                assert session.reset().ok
        hierarchies = len(own())
        most = len(cells_in(own())) / hierarchies
        assert most < 30, f"{most} cells for 60 episodes, at most 6 workers at once"


def test_every_live_worker_is_in_a_cell_of_its_own_and_nobody_else(own):
    with SyncPool(SandboxPolicy(num_workers=3, spares=1)) as pool:
        sessions = [pool.session(SOURCE, number).__enter__() for number in range(3)]
        assert all(session.reset().ok for session in sessions)
        in_cells = {}
        for cell in cells_in(own()):
            if "memory" in str(cell):
                in_cells[cell.name] = text_of(cell / "cgroup.procs").split()
        assert len([pids for pids in in_cells.values() if pids]) >= 3
        assert all(len(pids) <= 1 for pids in in_cells.values()), in_cells
        limits = {
            text_of(cell / name).strip()
            for cell in cells_in(own())
            for name in ("memory.limit_in_bytes", "memory.max")
        } - {""}
        assert limits
        assert not limits & {"max", "9223372036854771712"}, "no limit at all"
        for session in sessions:
            session.close()
