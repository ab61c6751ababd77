"""What the machine lacks: /dev/shm, /tmp, /proc, descriptors, processes, standard streams.

Each case runs in a process of its own, in mount namespaces of the test's own where files are taken
away; the real ones are never touched. Either an episode works, or a fault names what is missing;
never a hang, and the pool goes on once there is room.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.other_user import as_other_user

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).resolve().parents[2]
HEAD = """
import os, resource, sys
from spade_async.errors import SandboxError
from spade_async.sandbox import SandboxPolicy, SyncPool
SOURCE = "class AEnv:\\n def reset(self, seed): return 'ok', {}\\n"
def episode(pool):
    with pool.session(SOURCE, 0) as session:
        assert session.loaded.ok, session.loaded
        assert session.reset().observation == "ok"
"""
EPISODE = """
try:
    with SyncPool(SandboxPolicy(num_workers=2, spares=1)) as pool:
        episode(pool)
        print("ok", pool.capabilities["level"])
except SandboxError as error:
    print("fault", error)
"""


def run(program: str, *before: str, **options: object) -> str:
    """Output of a program in a process of its own, started through `before`."""
    command = [*before, sys.executable, "-B", "-c", HEAD + program]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, **options
    )  # type: ignore[call-overload]
    if before and done.returncode != 0 and "mount" in done.stderr.split("Traceback")[0]:
        pytest.skip(f"cannot set the stage here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_staged(stage: str, program: str = EPISODE, **options: object) -> str:
    """The same in a mount namespace of its own, after the shell commands of `stage`."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    own = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    script = f'set -e; {stage}; exec "$@"'
    return run(program, "unshare", *own, "sh", "-c", script, "sh", **options)


def lies_in(folder: str) -> bool:
    paths = (ROOT, Path(sys.prefix), Path(sys.base_prefix))
    return any(path.resolve().is_relative_to(folder) for path in paths)


def test_an_empty_dev_shm_of_no_size_changes_nothing():
    stage = "mkdir -p /dev/shm; mount -t tmpfs -o size=4k,nr_inodes=1,ro none /dev/shm"
    assert run_staged(stage).startswith("ok")


def test_a_missing_dev_shm_changes_nothing(tmp_path):
    names = ("null", "zero", "urandom")
    stage = "; ".join(
        f'touch "{tmp_path}/{name}"; mount --bind /dev/{name} "{tmp_path}/{name}"' for name in names
    )
    assert run_staged(f'{stage}; mount --rbind "{tmp_path}" /dev').startswith("ok")


def test_a_missing_dev_null_is_a_fault_that_names_it():
    out = run_staged("mount -t tmpfs -o ro none /dev")
    assert out.startswith("fault sandbox start: /dev/null: ")
    assert "mount a /dev" in out


def test_a_read_only_tmp_changes_nothing():
    stage = "mount --bind /tmp /tmp; mount -o remount,bind,ro /tmp"
    assert run_staged(stage).startswith("ok")


def test_an_empty_tmp_that_nobody_may_enter_changes_nothing():
    if lies_in("/tmp"):
        pytest.skip("the interpreter lies in /tmp")
    assert run_staged("mount -t tmpfs -o ro,mode=000 none /tmp").startswith("ok")


@pytest.mark.parametrize("gone", [("tmp",), ("tmp", "mnt", "var")])
@pytest.mark.parametrize("profile", ["compute", "files"])
def test_a_missing_tmp_changes_nothing(tmp_path, gone, profile):
    """A root of the test's own that has everything but these folders."""
    if any(lies_in(f"/{name}") for name in gone):
        pytest.skip("the interpreter lies there")
    stage = (
        f'new="{tmp_path}"; mount -t tmpfs none "$new"; for at in /*; do name="${{at#/}}"; '
        f'case " {" ".join(gone)} " in *" $name "*) continue;; esac; '
        'if [ -L "$at" ]; then cp -a "$at" "$new/$name"; '
        'elif [ -d "$at" ]; then mkdir "$new/$name"; mount --rbind "$at" "$new/$name"; fi; done; '
        'mount -o remount,ro "$new"; '
        f'set -- chroot "$new" sh -c \'cd "{ROOT}"; exec "$@"\' sh "$@"'
    )
    program = EPISODE.replace("spares=1", f"spares=1, profiles=({profile!r},)")
    out = run_staged(stage, "assert not os.path.exists('/tmp'), os.listdir('/')\n" + program)
    assert out.startswith("ok"), out


def test_a_missing_proc_is_a_fault_that_names_it():
    out = run_staged("mount -t tmpfs -o ro none /proc")
    assert out.startswith("fault sandbox start: profile compute: /proc/self/statm: ")
    assert "mount it" in out


def test_a_missing_sys_changes_nothing_but_the_cgroups():
    assert run_staged("umount -R /sys || true; mount -t tmpfs -o ro none /sys").startswith("ok")


@pytest.mark.parametrize("value", ["/nonexistent", "/proc", "", "\n"])
def test_an_unusable_tmpdir_changes_nothing(value):
    environment = {**os.environ, "TMPDIR": value, "HOME": value}
    assert run(EPISODE, env=environment).startswith("ok")


def test_an_empty_environment_changes_nothing():
    assert run(EPISODE, env={}).startswith("ok")


def test_a_working_folder_that_was_removed_changes_nothing():
    program = f"""
import tempfile
sys.path.insert(0, {str(ROOT)!r})
folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
"""
    assert run(program + EPISODE).startswith("ok")


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_closed_standard_streams_change_nothing(closed, tmp_path):
    # The pool's own descriptors then get the numbers 0, 1 and 2 in the host.
    result = tmp_path / "result"
    program = f"for fd in {closed}: os.close(fd)\n" + EPISODE.replace(
        "print(", f"print(file=open({str(result)!r}, 'w'), *("
    ).replace('"])\n', '"]))\n').replace("error)\n", "error))\n")
    run(program)
    assert result.read_text().startswith("ok"), result.read_text()


def test_any_small_number_of_descriptors_is_a_working_pool_or_a_typed_fault():
    program = """
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
worked, faults = [], []
episode_of = SandboxPolicy(num_workers=2, spares=2)
for limit in range(4, 40):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        with SyncPool(episode_of) as pool:
            episode(pool)
        worked.append(limit)
    except SandboxError as error:
        text = str(error)
        assert "open files" in text or "os error 24" in text or "descriptor" in text, text
        faults.append(limit)
    except OSError as error:
        assert error.errno == 24, error
        faults.append(limit)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
with SyncPool(episode_of) as pool:
    episode(pool)
    print("ok", len(os.listdir("/proc/self/fd")), len(worked), len(faults))
"""
    ok, num_fds, worked, faults = run(program).split()
    assert ok == "ok"
    assert int(num_fds) < 40, "descriptors were lost on the way"
    assert int(worked) > 5
    assert int(faults) > 1


def test_too_few_processes_is_a_typed_fault_and_then_recovery():
    program = """
limit = int(sys.argv[1]) if len(sys.argv) > 1 else 12
resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
assert os.getuid() != 0
sessions, faults = [], []
try:
    pool = SyncPool(SandboxPolicy(num_workers=64, spares=1))
    pool.start()
    for seed in range(30):
        session = pool.session(SOURCE, seed)
        try:
            session.__enter__()
            sessions.append(session)
        except SandboxError as error:
            faults.append(str(error))
            if len(faults) > 2:
                break
    assert faults and all("worker" in text for text in faults), faults
    assert sessions, faults
    assert all(session.reset().ok for session in sessions)
    for session in sessions:
        session.close()
    for attempt in range(100):
        try:
            episode(pool)
            break
        except SandboxError:
            import time
            time.sleep(0.05)  # the kernel counts the dead until they are collected
    else:
        raise AssertionError("no recovery")
    pool.close()
    print("ok", len(sessions), faults[0])
except SandboxError as error:
    print("fault", error)
"""
    user = as_other_user(64123)  # with no process elsewhere that would count
    out = run(program, *user)
    assert out.startswith("ok"), out
    out = run(program.replace("else 12", "else 1"), *user)
    assert out.startswith("fault sandbox "), out
