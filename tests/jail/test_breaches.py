"""A breach of a limit names the limit and its value; a sibling's life and the pool go on."""

from collections.abc import Iterator

import pytest

from spade_async.sandbox import SandboxPolicy, SyncPool
from spade_async.sandbox_profiles import Profile
from spade_async.types import Outcome
from tests.support.jail_probe import source

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
POLICY = SandboxPolicy(
    num_workers=4, spares=1, wall_s_per_call=0.75, cpu_s_per_call=0.5, load_wall_s=1.5,
    memory_bytes=48 * MIB, reply_bytes=10_000, branches=3,
    profiles=(
        "compute", "threads",
        Profile("small", tiers=("files",), files_bytes=MIB, files_inodes=16),
    ),
)  # fmt: skip
OPEN_ALL = "x = [open('/tmp/a', 'w') for _ in range(500)]"
FILL = "open('/tmp/a', 'wb').write(bytes(900_000)); open('/tmp/b', 'wb').write(bytes(900_000))"
THREADS = """
import threading
stop = threading.Event()
for _ in range(99): threading.Thread(target=stop.wait, daemon=True).start()
"""
BREACHES = {
    "wall": ("compute", "import time; time.sleep(99)", Outcome.TIMED_OUT, "limit 0.75 s"),
    "cpu": ("compute", "while True: pass", Outcome.TIMED_OUT, "limit 0.5 s"),
    "memory at once": ("compute", "x = bytes(1 << 32)", Outcome.OVER_MEMORY, f"{48 * MIB} bytes"),
    "memory in pieces": (
        "compute", "x = []\nwhile True: x.append(bytes(99_999))", Outcome.OVER_MEMORY,
        f"limit {48 * MIB} bytes",
    ),
    "output": ("compute", "out = 'x' * 10_001", Outcome.OVER_OUTPUT, "limit 10000"),
    "threads": ("threads", THREADS, Outcome.EXCEPTION, "limit 8 processes and threads"),
    "no threads": ("compute", THREADS, Outcome.EXCEPTION, "limit 1 processes and threads"),
    "files' size": ("small", FILL, Outcome.EXCEPTION, f"limit {MIB} bytes, 16 files and folders"),
    "one file's size": (
        "small", "open('/tmp/a', 'wb').truncate(1 << 40)", Outcome.EXCEPTION, f"limit {MIB} bytes",
    ),
    "files' number": (
        "small", "for at in range(99): open(f'/tmp/{at}', 'w').close()", Outcome.EXCEPTION,
        f"limit {MIB} bytes, 16 files and folders",
    ),
    "descriptors": ("small", OPEN_ALL, Outcome.EXCEPTION, "limit 128 descriptors"),
}  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> Iterator[SyncPool]:
    with SyncPool(POLICY) as pool:
        yield pool


@pytest.mark.parametrize("kind", BREACHES)
def test_a_breach_names_its_limit(pool: SyncPool, kind: str) -> None:
    profile, body, outcome, text = BREACHES[kind]
    with (
        pool.session(source("out = 1"), 1) as sibling,
        pool.session(source(body), 1, profile=profile) as session,
    ):
        assert sibling.reset().ok
        assert session.reset().ok
        reply = session.step("go")
        assert reply.outcome is outcome, reply
        assert text in reply.detail, reply
        assert sibling.step("go").observation == "1"


@pytest.mark.parametrize("head", ["import time; time.sleep(99)", "while True: pass"])
def test_a_breach_while_loading_names_the_limit_of_loading(pool: SyncPool, head: str) -> None:
    with pool.session(head, 1) as session:
        assert session.loaded.outcome is Outcome.TIMED_OUT
        assert session.loaded.detail.startswith(("wall: ", "cpu: "))  # both have the same limit
        assert "limit 1.5 s" in session.loaded.detail


def test_a_breach_of_the_processes_of_a_family_names_their_number(pool: SyncPool) -> None:
    if not pool.capabilities["layers"]["cgroup"]["ok"]:
        pytest.skip("families need a control group, or root")
    body = "while os.fork(): pass\nwhile True: __import__('time').sleep(9)"
    with pool.session(source(body), 1, forkable=True) as session:
        assert session.reset().ok
        reply = session.step("go")
        assert reply.outcome is Outcome.EXCEPTION, reply
        assert "limit 4 processes of all copies together" in reply.detail, "1 + branches"


@pytest.mark.parametrize(
    "error",
    ["OSError(28, 'full')", "RuntimeError(\"can't start new thread\")", "OSError([], 'x')",
     "BlockingIOError(11, 'again')", "MemoryError('much')"],
)  # fmt: skip
def test_what_is_raised_by_hand_names_no_limit(pool: SyncPool, error: str) -> None:
    with pool.session(source(f"raise {error}"), 1, profile="small") as session:
        assert session.reset().ok
        reply = session.step("go")
        assert reply.outcome is Outcome.EXCEPTION
        assert "limit" not in reply.detail
        assert session.reset().ok, "the session goes on"
