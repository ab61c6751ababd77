"""What each profile promises and what it refuses, in real workers; profiles of a user's own."""

import importlib.util
import os
import subprocess
import sys

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import SyncPool
from spade_async.sandbox_profiles import Profile, check_profile, load_profiles
from spade_async.types import Outcome
from tests.support.interpreters import other_interpreters
from tests.support.jail_probe import policy, runner, source
from tests.support.other_user import ROOT, as_other_user

pytestmark = pytest.mark.timeout(120)

NO_NUMPY = importlib.util.find_spec("numpy") is None


@pytest.fixture(scope="module")
def pool():
    """One pool with several templates, so that they also have to live side by side."""
    with SyncPool(policy("compute", "files", "asyncio", "threads")) as pool:
        yield pool


@pytest.fixture
def run(pool):
    return runner(pool)


def test_pure_computing_has_no_writable_path_and_no_readable_one(run):
    for call in ("open('/tmp/x', 'w')", "open('x', 'w')", "os.mkdir('/x')", "os.listdir('/')",
                 "open('/dev/null')", "os.stat('/')", "os.getcwd()"):  # fmt: skip
        reply = run("compute", call)
        assert reply.outcome is Outcome.REFUSED_CALL, (call, reply)
    assert run("compute", "import tempfile").outcome is Outcome.EXCEPTION


def test_pure_computing_has_no_threads_and_no_event_loop_and_says_so(run):
    reply = run("compute", "import threading; threading.Thread(target=print).start()")
    assert reply.outcome is Outcome.EXCEPTION
    assert "can't start new thread" in reply.detail
    reply = run("compute", "import asyncio")
    assert reply.outcome is Outcome.EXCEPTION
    assert "No module named 'asyncio'" in reply.detail
    assert run("compute", "import socket; socket.socketpair()").outcome is Outcome.REFUSED_CALL


def test_an_event_loop_sleeps_gathers_queues_and_times_out(run):
    body = """
    import asyncio
    async def main():
        queue, got = asyncio.Queue(2), []
        async def feed():
            for number in range(4):
                await asyncio.sleep(0.001)
                await queue.put(number)
        async with asyncio.TaskGroup() as group:
            group.create_task(feed())
            for _ in range(4):
                got.append(await queue.get())
        got += await asyncio.gather(*(asyncio.sleep(0.001, name) for name in "ab"))
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            got.append("late")
        lock, event = asyncio.Lock(), asyncio.Event()
        async with lock:
            event.set()
        await event.wait()
        return got
    out = [asyncio.run(main()), asyncio.run(main())]
    """
    assert run("asyncio", body) == [[0, 1, 2, 3, "a", "b", "late"]] * 2


def test_an_event_loop_opens_no_connection_and_runs_no_program(run):
    connect = "import asyncio\nasyncio.run(asyncio.open_connection('127.0.0.1', 80))"
    assert run("asyncio", connect).outcome in (Outcome.REFUSED_CALL, Outcome.EXCEPTION)
    program = "import asyncio\nasyncio.run(asyncio.create_subprocess_exec('/bin/true'))"
    assert run("asyncio", program).outcome in (Outcome.REFUSED_CALL, Outcome.EXCEPTION)
    other = "import socket\nsocket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)"
    assert run("asyncio", other).outcome is Outcome.REFUSED_CALL
    thread = "import threading; threading.Thread(target=print).start()"
    assert run("asyncio", thread).outcome is Outcome.EXCEPTION


def test_threads_start_up_to_their_number_and_end_with_the_episode(run):
    body = """
    import threading
    from concurrent.futures import ThreadPoolExecutor
    total, lock = [0], threading.Lock()
    def add():
        for _ in range(100):
            with lock: total[0] += 1
    threads = [threading.Thread(target=add) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    # What was joined may still be counted by the kernel for a moment: there is room for both.
    with ThreadPoolExecutor(2) as executor:
        out = [total[0], list(executor.map(lambda x: x * x, range(4)))]
    """
    assert run("threads", body) == [400, [0, 1, 4, 9]]
    # A thread that never ends holds up neither the reply nor the end of the session.
    endless = """
    import threading
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    out = threading.active_count()
    """
    assert run("threads", endless) == 2
    assert run("threads", "os.fork()").outcome is Outcome.REFUSED_CALL


def test_more_threads_than_allowed_are_an_exception(pool, run):
    body = """
    import threading
    stop, started = threading.Event(), 0
    try:
        for _ in range(2000):
            threading.Thread(target=stop.wait, daemon=True).start()
            started += 1
    except RuntimeError:
        out = started
    stop.set()
    """
    started = run("threads", body)
    counted = os.geteuid() == 0 or pool.capabilities["layers"].get("pids", {}).get("ok")
    # Where threads are not counted, the memory for their stacks ends them.
    assert started == 7 if counted else 0 < started < 2000


@pytest.mark.skipif(NO_NUMPY, reason="numpy is not installed")
def test_numpy_is_whole_and_two_templates_with_it_live_side_by_side():
    body = """
    matrix = np.random.rand(200, 200) + 200 * np.eye(200)
    solved = np.linalg.solve(matrix, matrix @ np.ones(200))
    out = [bool(np.allclose(solved, 1)), float(np.fft.ifft(np.fft.fft(np.arange(8.0)))[3].real),
           float(np.polynomial.Polynomial([1, 2])(3)), np.array2string(np.arange(3)),
           int(np.random.default_rng(3).integers(100)), str(np.datetime64('2024-02-29'))]
    """
    files = "np.save('/tmp/a.npy', np.arange(5)); out = np.load('/tmp/a.npy').tolist()"
    with SyncPool(policy("numpy", "numpy-files")) as pool:
        for profile in ("numpy", "numpy-files", None):
            with pool.session(source(body), 1, profile=profile) as session:
                assert session.reset().ok, session.loaded
                whole = eval(session.step("go").observation)
                assert whole == [True, pytest.approx(3.0), 7.0, "[0 1 2]", 81, "2024-02-29"]
        with pool.session(source(files), 1, profile="numpy-files") as session:
            session.reset()
            assert eval(session.step("go").observation) == [0, 1, 2, 3, 4]
        with pool.session(source(files), 1, profile="numpy") as session:
            session.reset()
            assert session.step("go").outcome is Outcome.REFUSED_CALL


@pytest.mark.skipif(NO_NUMPY, reason="numpy is not installed")
def test_linear_algebra_in_a_template_does_not_hang_that_of_its_workers(tmp_path, monkeypatch):
    # Threads of a BLAS do not come along in a fork, nor do the locks that they hold.
    (tmp_path / "solved_before.py").write_text(
        "import numpy as np\nX = np.linalg.solve(np.eye(200) * 2, np.ones(200))\n"
        "Y = np.ones((400, 400)) @ np.ones((400, 400))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    body = """
    import solved_before
    matrix = np.eye(200) * 4
    out = [float(solved_before.X[7]), float(solved_before.Y[3, 3]),
           float(np.linalg.solve(matrix, np.ones(200))[7]),
           float((np.ones((400, 400)) @ np.ones((400, 400)))[1, 1])]
    """
    record = Profile("algebra", packages=("numpy", "solved_before"))
    with SyncPool(policy(record)) as pool:
        for seed in range(3):
            with pool.session(source(body), seed) as session:
                assert session.reset().ok, session.loaded
                assert eval(session.step("go").observation) == [0.5, 400.0, 0.25, 400.0]


def test_a_profile_of_the_user_comes_from_a_toml_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[puzzles]\nextends = ["files", "asyncio"]\npackages = ["graphlib"]\n'
        "files_bytes = 65536\nvirtual_clock = true\n"
    )
    body = """
    import asyncio, graphlib, time
    open('/tmp/x', 'w').write('x')
    begun = time.monotonic()
    asyncio.run(asyncio.sleep(3600))
    order = graphlib.TopologicalSorter({1: {2}}).static_order()
    out = [time.monotonic() - begun > 3600, list(order)]
    """
    for profile in (load_profiles(path)["puzzles"], f"{path}:puzzles"):
        with (
            SyncPool(policy(profile)) as pool,
            pool.session(source(body), 1) as session,
        ):
            assert session.reset().ok, session.loaded
            assert eval(session.step("go").observation) == [True, [2, 1]]


def test_a_package_that_cannot_be_imported_names_profile_package_and_remedy():
    bad = Profile("broken", packages=("json", "no_such_module"))
    with pytest.raises(SandboxError) as caught:
        SyncPool(policy("compute", bad)).start()
    for word in ("broken", "no_such_module", "install"):
        assert word in str(caught.value)


def test_templates_of_several_interpreters_live_in_one_pool():
    records = [Profile("own")]
    for name, path in other_interpreters().items():
        record = Profile(name.replace(".", "-"), python=path)
        checked = check_profile(record)
        assert checked.ok, checked
        records.append(record)
    body = "out = 'python%d-%d' % sys.version_info[:2]"
    with SyncPool(policy(*records)) as pool:
        for record in records[1:]:
            with pool.session(source(body), 1, profile=record.name) as session:
                assert session.reset().ok, session.loaded
                assert eval(session.step("go").observation) == record.name
        with pool.session(source(body), 1) as session:
            session.reset()
            own = f"python{sys.version_info[0]}-{sys.version_info[1]}"
            assert eval(session.step("go").observation) == own


def test_an_unknown_profile_is_named_with_the_nearest_one(pool):
    with pytest.raises(ValueError, match="did you mean 'numpy'"):
        policy("numpi")
    with pytest.raises(ValueError, match="numpy"):
        pool.session(source("pass"), 1, profile="numpy")  # built in, but not of this pool


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give users")
def test_two_pools_share_no_user_whose_threads_would_count_for_both(run):
    users = set()
    for _ in range(3):
        with (
            SyncPool(policy("threads", spares=2)) as pool,
            pool.session(source("out = os.getuid()"), 1) as first,
            pool.session(source("out = os.getuid()"), 1) as second,
        ):
            for session in (first, second):
                session.reset()
                users.add(eval(session.step("go").observation))
            users.add(run("threads", "out = os.getuid()"))
    assert len(users) >= 7, "six of the short pools, and one at least of the long one"
    assert min(users) >= 0x70000000


def test_a_session_with_threads_or_files_cannot_be_forkable(pool):
    for name in ("files", "threads"):
        with pytest.raises(ValueError, match=f"{name} cannot be forked"):
            pool.session(source("pass"), 1, profile=name, forkable=True)
    body = "import asyncio\nout = asyncio.run(asyncio.sleep(0.001, 'slept'))"
    with pool.session(source(body), 1, profile="asyncio", forkable=True) as session:
        assert session.reset().ok
        with session.fork() as branch:
            assert branch.step("x").observation == session.step("x").observation == "'slept'"


def test_profiles_do_not_lend_each_other_rights(run):
    assert run("files", "import asyncio").outcome is Outcome.EXCEPTION
    assert run("asyncio", "open('/tmp/x', 'w')").outcome is Outcome.REFUSED_CALL
    assert run("threads", "open('/tmp/x', 'w')").outcome is Outcome.REFUSED_CALL
    assert run("threads", "import socket; socket.socketpair()").outcome is Outcome.REFUSED_CALL


NO_SPACE = "files exception in step: OSError: [Errno 28]"
READ_ONLY = "files exception in step: OSError: [Errno 30]"
UNPRIVILEGED = """
import os, sys
from tests.support.jail_probe import policy, source
from spade_async.sandbox import SyncPool
assert os.getuid() == 65534
full = "open('/tmp/a', 'wb').write(bytes(1 << 25))"
bodies = {
    "files": ["open('/tmp/a', 'w').write('x'); out = os.listdir('/tmp')",
              "out = os.listdir('/tmp')", full, "open('/x', 'w')", "os.listdir('/')",
              "os.symlink('a', '/tmp/b')"],
    "asyncio": ["import asyncio; out = asyncio.run(asyncio.sleep(0.001, 'slept'))"],
    "threads": ["import threading; t = threading.Thread(target=print); t.start(); out = t.join()"],
    "compute": ["import threading; threading.Thread(target=print).start()"],
}
with SyncPool(policy(*bodies)) as pool:
    for profile, list_of in bodies.items():
        for body in list_of:
            with pool.session(source(body), 1, profile=profile) as session:
                session.reset()
                reply = session.step("go")
                print(profile, reply.outcome.value, reply.observation or reply.detail)
"""


def test_an_ordinary_user_gets_the_same_profiles():
    command = [*as_other_user(), sys.executable, "-B", "-c", UNPRIVILEGED]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    if done.returncode != 0 and "allow user namespaces" in done.stderr:
        pytest.skip("an ordinary user gets no namespace here")
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert lines[:2] == ["files finished ['a']", "files finished []"]
    assert lines[2].startswith(("files exception in step: OSError: [Errno 27]", NO_SPACE))
    assert lines[3].startswith(
        ("files refused_call", "files exception in step: OSError: [Errno 30]")
    )
    assert all(line.startswith("files refused_call") for line in lines[4:6])
    assert lines[6:8] == ["asyncio finished 'slept'", "threads finished None"]
    assert "can't start new thread" in lines[8]
