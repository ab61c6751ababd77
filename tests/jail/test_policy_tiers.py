"""What each tier of calls is for, done by ordinary Python code; and what it must not become."""

import textwrap
from collections.abc import Callable, Iterator

import pytest

from spade_async.sandbox import SandboxPolicy, SyncPool
from spade_async.sandbox_profiles import Profile
from spade_async.types import Outcome, Reply

pytestmark = pytest.mark.timeout(120)

TIERS = ("compute", "files", "asyncio", "threads", "all")
Run = Callable[[str, str], Reply]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a function body under a profile; what it returns is the observation."""
    profiles = []
    for name in TIERS:
        tiers = TIERS[1:4] if name == "all" else () if name == "compute" else (name,)
        has_files = "files" in tiers
        record = Profile(
            name, tiers=tiers, pids=8 if "threads" in tiers else 1,
            files_bytes=1 << 20 if has_files else 0, files_inodes=64 if has_files else 0,
            packages=("asyncio", "tempfile", "shutil", "pathlib", "mmap", "fcntl", "resource"),
        )  # fmt: skip
        profiles.append(record)
    policy = SandboxPolicy(
        num_workers=2, spares=1, profiles=tuple(profiles), wall_s_per_call=20, cpu_s_per_call=10,
        load_wall_s=20,
    )  # fmt: skip

    with SyncPool(policy) as pool:

        def run(profile: str, body: str) -> Reply:
            body = textwrap.indent(textwrap.dedent(body), " " * 8)
            source = (
                f"class AEnv:\n    def work(self):\n{body}\n"
                "    def reset(self, seed=None):\n        return str(self.work()), {}\n"
            )
            with pool.session(source, 1, profile=profile) as session:
                assert session.loaded.ok, session.loaded
                return session.reset()

        yield run


EVENT_LOOP = """
import asyncio
async def double(queue):
    await queue.put(await queue.get() * 2)
async def main():
    queue = asyncio.Queue()
    await queue.put(21)
    await asyncio.gather(double(queue), asyncio.sleep(0.01))
    try:
        await asyncio.wait_for(asyncio.sleep(60), 0.01)
    except TimeoutError:
        return await queue.get()
return asyncio.run(main())
"""
STREAM_PAIR = """
import asyncio, socket
async def main():
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    writer.write(b"ping")
    await writer.drain()
    theirs.settimeout(10)
    theirs.sendall(theirs.recv(4).upper())
    answer = await reader.readexactly(4)
    writer.close()
    theirs.close()
    return answer
return asyncio.run(main())
"""
THREADS = """
import threading
found, ready = [], threading.Event()
threads = [threading.Thread(target=lambda i=i: (ready.wait(), found.append(i))) for i in range(4)]
for thread in threads:
    thread.start()
ready.set()
for thread in threads:
    thread.join()
return sorted(found)
"""
FILES = """
import os, pathlib, shutil, tempfile
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "a" / "b"
    path.mkdir(parents=True)
    (path / "f").write_text("text" * 10)
    shutil.copyfile(path / "f", path / "g")
    os.replace(path / "g", path / "h")
    with open(path / "h", "r+b") as file:
        file.seek(4)
        file.truncate()
        os.fsync(file.fileno())
        os.close(os.dup(file.fileno()))
    found = sorted(os.listdir(path)), (path / "h").read_text(), os.stat(path / "f").st_size
return found, os.listdir("/tmp")
"""


@pytest.mark.parametrize(
    ("body", "tier", "observation"),
    [
        (EVENT_LOOP, "asyncio", "42"),
        (STREAM_PAIR, "asyncio", "b'PING'"),
        (THREADS, "threads", "[0, 1, 2, 3]"),
        (FILES, "files", "((['f', 'h'], 'text', 40), [])"),
    ],
    ids=["event loop", "stream pair", "threads", "files"],
)
def test_a_tier_serves_its_use_and_no_other_does(run, body, tier, observation):
    for profile in TIERS:
        reply = run(profile, body)
        if profile in (tier, "all"):
            assert reply.observation == observation, (profile, reply)
        else:
            assert reply.outcome in (Outcome.REFUSED_CALL, Outcome.EXCEPTION), (profile, reply)


def test_a_loop_can_hand_work_to_a_thread(run):
    body = """
    import asyncio
    async def main():
        return await asyncio.to_thread(sum, range(10))
    return asyncio.run(main())
    """
    assert run("all", body).observation == "45"


NEVER = [
    "import socket; socket.socketpair(socket.AF_INET)",
    "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "import socket; socket.socket(socket.AF_UNIX)",
    "import socket; socket.socketpair()[0].sendto(b'x', '/tmp/s')",
    "import socket; a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [0])",
    "import os; os.fork()",
    "import os; os.symlink('/tmp/a', '/tmp/b')",
    "import os; os.link('/tmp/a', '/tmp/b')",
    "import os; os.mkfifo('/tmp/pipe')",
    "import os; os.chdir('/tmp')",
    "import os; os.open('/tmp', os.O_PATH)",
    "import os; os.open('/tmp', os.O_TMPFILE | os.O_RDWR)",
    "import os; open('/tmp/a', 'w').close(); os.chmod('/tmp/a', 0o4777)",
    "import os; open('/tmp/a', 'w').close(); os.setxattr('/tmp/a', 'user.x', b'')",
    "import fcntl; fcntl.flock(open('/tmp/a', 'w'), fcntl.LOCK_EX)",
    "import fcntl; fcntl.lockf(open('/tmp/a', 'w'), fcntl.LOCK_EX)",
    "import fcntl; fcntl.ioctl(0, 0x5412, b'x')",  # TIOCSTI
    "import mmap; mmap.mmap(-1, 4096)",  # shared
    "import mmap; mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_EXEC)",
    "import os; os.sched_setaffinity(0, [0])",
    "import signal, threading; signal.pthread_kill(threading.get_ident(), signal.SIGTERM)",
    "import resource; resource.prlimit(0, resource.RLIMIT_NOFILE, (64, 64))",
]


@pytest.mark.parametrize("body", NEVER)
def test_no_tier_allows(run, body):
    reply = run("all", body)
    assert reply.outcome is Outcome.REFUSED_CALL, reply
    assert "PermissionError" in reply.detail or "OSError" in reply.detail
