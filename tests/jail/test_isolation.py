"""What a worker can see and reach; what the jail does where layers are missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import SandboxPolicy, SyncPool, probe_capabilities
from spade_async.types import Outcome
from tests.support.jail_steps import OPEN_DESCRIPTORS

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).resolve().parents[2]
SMALL = SandboxPolicy(num_workers=2, spares=1)


def test_the_worker_has_exactly_its_two_pipes(step):
    body = OPEN_DESCRIPTORS + "return repr(found), 0.0, True, False, {}"
    # Also with many siblings alive, whose pipes the template has held.
    assert step(body).observation == "[0, 1]"


def test_descriptors_of_siblings_do_not_leak_into_later_workers(step):
    for _ in range(5):
        body = "import os\nos.get_inheritable(2)"
        reply = step(body)
        assert "Bad file descriptor" in reply.detail


def test_a_secret_of_the_host_is_not_visible(monkeypatch):
    monkeypatch.setenv("SPADE_SENTINEL", "sentinel-7f3a")
    body = (
        "class AEnv:\n def reset(self, seed):\n  import os, sys\n"
        "  return repr((dict(os.environ), sys.argv, sys.orig_argv, sys.path,"
        " sorted(sys.modules), os.getpid(), os.getppid(), sys.flags.hash_randomization)), {}\n"
    )
    with SyncPool(SMALL) as pool, pool.session(body, 0) as session:
        text = session.reset().observation
    environ, argv, orig_argv, path, modules, _, _, randomised = eval(text)
    assert "sentinel" not in text
    assert set(environ) <= {
        "PYTHONHASHSEED", "LC_ALL", "LC_CTYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
        "PYTHON_DISABLE_REMOTE_DEBUG", "TZ", "PYTHONSAFEPATH", "LD_BIND_NOW",
    }  # fmt: skip
    assert argv == orig_argv == ["environment"]
    assert path == []
    assert not [name for name in modules if "sandbox" in name or "spade" in name]
    assert randomised == 0


def test_a_worker_is_alone_in_its_namespace_and_without_rights(step):
    if not probe_capabilities()["layers"]["worker_pid_namespace"]["ok"]:
        pytest.skip("no PID namespaces on this machine")
    body = "import os; return repr((os.getpid(), os.getppid())), 0, True, False, {}"
    assert step(body).observation == "(1, 0)"
    if os.geteuid() == 0:
        body = "import os; return repr(os.getuid()), 0, True, False, {}"
        users = {step(body).observation for _ in range(3)}
        assert len(users) == 3, "each live worker has a user id of its own"
        assert "0" not in users


def test_a_late_import_finds_nothing(step):
    assert "ModuleNotFoundError" in step("import xmlrpc.client").detail
    assert "ModuleNotFoundError" in step("import ctypes").detail


def test_an_episode_leaves_no_memory_for_the_next(pool):
    source = (
        "class AEnv:\n def reset(self, seed):\n"
        "  seen = getattr(collections, 'mark', None), math.__dict__.get('mark')\n"
        "  collections.mark = math.mark = 1\n"
        "  return repr(seen), {}\n"
    )
    for _ in range(3):
        with pool.session(source, 0) as session:
            assert session.reset().observation == "(None, None)"


def test_extra_modules_are_there_when_asked_for_and_seeded():
    pytest.importorskip("numpy")
    source = (
        "class AEnv:\n def reset(self, seed):\n"
        "  a = np.random.rand(3)\n"
        "  b = np.linalg.solve(np.eye(200) * 2, np.ones(200))\n"
        "  return repr((a.tolist(), float(b.sum()))), {}\n"
        " def step(self, action): return 'x', np.float32(0.5), np.bool_(True), False, {}\n"
    )
    policy = SandboxPolicy(num_workers=2, spares=1, imports=("numpy",))
    texts = []
    with SyncPool(policy) as pool:
        for seed in (5, 5, 6):
            with pool.session(source, seed) as session:
                reply = session.reset()
                assert reply.ok, reply
                texts.append(reply.observation)
                reply = session.step("x")
                assert (reply.reward, reply.terminated) == (0.5, True)
    assert texts[0] == texts[1] != texts[2]


def test_a_missing_extra_module_is_a_fault_at_start():
    with pytest.raises(SandboxError, match="no_such_module"):
        SyncPool(SandboxPolicy(imports=("no_such_module",))).start()


def test_a_missing_interpreter_is_a_fault_at_start():
    with pytest.raises(SandboxError, match="python"):
        SyncPool(SandboxPolicy(python="/nonexistent/python")).start()
    with pytest.raises(SandboxError, match="python"):
        SyncPool(SandboxPolicy(python="/bin/true")).start()


LAYERS = [
    "pid_namespace", "worker_pid_namespace", "network_namespace", "ipc_namespace", "empty_root",
    "landlock", "rlimits", "identity", "cgroup",
]  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_strict_refuses_and_auto_records_a_missing_layer(layer):
    strict = SandboxPolicy(level="strict", num_workers=1, spares=1)
    with pytest.raises(SandboxError, match=layer):
        SyncPool(strict, _without=frozenset({layer})).start()
    with SyncPool(SMALL, _without=frozenset({layer})) as pool:
        assert ", without " in pool.capabilities["level"]
        assert layer in pool.capabilities["level"]
        assert pool.capabilities["layers"][layer]["remedy"]
        with pool.session("class AEnv:\n def reset(self, s): return open('/etc/passwd')", 0) as s:
            assert s.loaded.ok
            assert s.reset().outcome is Outcome.REFUSED_CALL


def test_with_no_namespace_at_all_the_outcomes_stay_the_same():
    without = frozenset([*LAYERS[:5], "clone3"])  # as in a container with default rights
    with SyncPool(SMALL, _without=without) as pool:
        for body, outcome in (
            ("while True: pass", Outcome.TIMED_OUT),
            ("import os; os._exit(1)", Outcome.CRASHED),
            ("import os; os.kill(os.getppid(), 9)", Outcome.REFUSED_CALL),
            ("return 'x', {}", Outcome.FINISHED),
        ):
            with pool.session(f"class AEnv:\n def reset(self, s):\n  {body}", 0) as session:
                assert session.reset().outcome is outcome


@pytest.mark.parametrize("level", ["auto", "strict"])
def test_without_seccomp_every_level_refuses(level):
    with pytest.raises(SandboxError, match="seccomp"):
        SyncPool(SandboxPolicy(level=level), _without=frozenset({"seccomp"})).start()


def test_capabilities_name_every_layer():
    report = probe_capabilities()
    assert set(report["layers"]) == {*LAYERS, "no_new_privs", "seccomp", "self_test"}
    assert all(set(entry) == {"ok", "detail", "remedy"} for entry in report["layers"].values())


PROBE = """
import sys
from spade_async.sandbox import SandboxPolicy, SyncPool
import os
assert os.getuid() == 65534
with SyncPool(SandboxPolicy(num_workers=2, spares=1, python=sys.executable)) as pool:
    print(pool.capabilities["level"])
    for body in ("return 'fine', {}", "open('/etc/passwd')", "while True: pass"):
        with pool.session("class AEnv:\\n def reset(self, s):\\n  " + body, 0) as s:
            print(s.reset().outcome.value)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: needs root")
def test_an_unprivileged_user_gets_the_same_jail():
    if shutil.which("setpriv") is None or shutil.which("unshare") is None:
        pytest.skip("needs setpriv and unshare")
    prefix = Path(sys.prefix)
    is_open = all(folder.stat().st_mode & 0o001 for folder in (prefix, *prefix.parents[:-1]))
    if not is_open and prefix.parts[1] not in ("root", "home"):
        pytest.skip(f"another user cannot read {prefix}")
    # An interpreter below a private home is made reachable in a mount namespace of the test's own.
    home = Path(sys.base_prefix).resolve()
    script = (
        f'd=$(mktemp -d) && mount --bind "{home}" "$d" && mount -t tmpfs tmpfs "/{home.parts[1]}" '
        f'&& chmod 755 "/{home.parts[1]}" && mkdir -p "{home}" && mount --bind "$d" "{home}" && '
        if home.parts[1] in ("root", "home") and not str(ROOT).startswith(f"/{home.parts[1]}/")
        else ""
    ) + 'exec setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-B", "-c", PROBE]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )
    if done.returncode != 0 and ("mount" in done.stderr or "ermission" in done.stderr):
        pytest.skip(f"cannot set the stage here: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    level, *outcomes = done.stdout.split("\n")[:-1]
    assert outcomes == ["finished", "refused_call", "timed_out"]
    assert level.split(",")[0] in ("strict", "rootless", "container")
