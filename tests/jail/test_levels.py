"""Which level a machine gives, and that outcomes are the same on all of them.

The machines are made here, in processes and mount namespaces of the test's own: an ordinary user, a
container's root, a container that knows no user namespaces, a security module that takes the rights
of one away. Nothing of this machine is changed. `docs/levels.md` tells of each.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import SandboxPolicy, SyncPool, probe_capabilities
from spade_async.types import Outcome
from tests.support.other_user import as_other_user

pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).resolve().parents[2]
NARROW = str(ROOT / "tests/support/narrow.py")
NAMESPACES = [
    "pid_namespace", "network_namespace", "ipc_namespace", "empty_root", "worker_pid_namespace",
]  # fmt: skip
# What the root of a container has by default: no administration, no tracing.
CONTAINER_RIGHTS = (
    "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,"
    "+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap"
)
CGROUPS_READ_ONLY = (
    "for at in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts); do "
    'mount -o remount,bind,ro "$at"; done'
)

# Each case is one step of a fresh worker; the pool has 48 MiB per worker.
HOSTILE = {
    "read": "open('/etc/passwd').read()",
    "write": "open('/tmp/spade-level', 'w')",
    "list": "__import__('os').listdir('/')",
    "socket": "__import__('socket').socket()",
    "fork": "__import__('os').fork()",
    "kill": "__import__('os').kill(__import__('os').getppid(), 9)",
    "memory": "x = bytearray(480 << 20)",
    "memory_slowly": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "loop": "while True: pass",
    "leave": "__import__('os')._exit(0)",
    "flood": "return 'x' * (1 << 24), 0.0, True, False, {}",
    "fine": "return 'done', 1.0, True, False, {}",
}
EXPECTED = {
    "read": "refused_call",
    "write": "refused_call",
    "list": "refused_call",
    "socket": "refused_call",
    "fork": "refused_call",
    "kill": "refused_call",
    "memory": "over_memory",
    "memory_slowly": "over_memory",
    "loop": "timed_out",
    "leave": "crashed",
    "flood": "over_output",
    "fine": "finished",
}

PROBE = f"""
import json, textwrap
from spade_async.errors import SandboxError
from spade_async.sandbox import SandboxPolicy, SyncPool
HOSTILE = {HOSTILE!r}
found = {{"outcomes": {{}}, "refusals": {{}}}}
limits = dict(num_workers=2, spares=1, cpu_s_per_call=0.5, memory_bytes=48 << 20)
with SyncPool(SandboxPolicy(profiles=("asyncio",), **limits)) as pool:
    found["level"] = pool.capabilities["level"]
    found["layers"] = pool.capabilities["layers"]
    for name, body in HOSTILE.items():
        source = "class AEnv:\\n def reset(self, seed): return 'ok', {{}}\\n"
        source += " def step(self, action):\\n" + textwrap.indent(body, "  ")
        with pool.session(source, 0) as session:
            assert session.loaded.ok and session.reset().ok, (session.loaded, session.reset())
            found["outcomes"][name] = session.step("go").outcome.value
for level in ("strict", "rootless", "container", "minimal"):
    try:
        with SyncPool(SandboxPolicy(level=level, num_workers=1, spares=1)):
            pass
    except SandboxError as error:
        found["refusals"][level] = str(error)
print(json.dumps(found))
"""


def probe(*before: str) -> dict:
    """What a pool finds and what hostile steps come to, in a program started through `before`."""
    done = subprocess.run(
        [*before, sys.executable, "-B", "-c", PROBE],
        cwd=ROOT, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    if done.returncode != 0 and "Traceback" not in done.stderr:
        pytest.skip(f"cannot set the stage here: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def narrow(which: str) -> list[str]:
    return [sys.executable, "-B", NARROW, which, "--"]


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("sets a stage: needs root")
    if shutil.which("setpriv") is None or shutil.which("unshare") is None:
        pytest.skip("needs setpriv and unshare")


def staged(stage: str, *after: str) -> list[str]:
    """Start of a command in a mount namespace of its own, after these shell commands."""
    script = f'set -e; {stage}; exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", *after]


def check(found: dict, level: str, missing: list[str]) -> None:
    """The level and what is missing; refusals above it and none below; outcomes as everywhere."""
    layers = found["layers"]
    assert [name for name, layer in layers.items() if not layer["ok"]] == missing, layers
    assert found["level"] == (f"{level}, without {', '.join(missing)}" if missing else level)
    order = ["strict", "rootless", "container", "minimal"]
    assert list(found["refusals"]) == order[: order.index(level)]
    for text in found["refusals"].values():
        named = [name for name in missing if f"layer {name} is missing" in text]
        assert len(named) == 1, text
        seen = (re.sub(r"spade-[\d-]+", "", x) for x in (layers[named[0]]["detail"], text))
        assert next(seen) in next(seen), "what was seen"
        assert layers[named[0]]["remedy"] in text, "the next move"
    assert found["outcomes"] == EXPECTED


def has_cgroups() -> bool:
    return probe_capabilities()["layers"]["cgroup"]["ok"]


def test_root_of_the_machine_gets_everything():
    needs_root()
    check(probe(), *(("strict", []) if has_cgroups() else ("rootless", ["cgroup"])))


def test_an_ordinary_user_gets_all_but_the_cgroup():
    found = probe(*as_other_user())
    check(found, "rootless", ["cgroup"])
    assert "not delegated" in found["layers"]["cgroup"]["detail"]


def test_root_of_a_container_that_refuses_namespaces():
    needs_root()
    narrowed = ["setpriv", f"--bounding-set={CONTAINER_RIGHTS}", "--inh-caps=-all", "--"]
    found = probe(*staged(CGROUPS_READ_ONLY, *narrow("all"), *narrowed))
    check(found, "container", ["cgroup", *NAMESPACES])
    assert "user id per worker" in found["layers"]["identity"]["detail"]


def test_root_of_a_container_that_may_write_cgroups():
    needs_root()
    if not has_cgroups():
        pytest.skip("no memory cgroup here")
    narrowed = ["setpriv", f"--bounding-set={CONTAINER_RIGHTS}", "--inh-caps=-all", "--"]
    check(probe(*narrow("all"), *narrowed), "container", NAMESPACES)


def test_an_ordinary_user_in_a_container_that_refuses_namespaces():
    check(probe(*as_other_user(), *narrow("all")), "container", ["cgroup", *NAMESPACES])


def test_a_root_without_rights_where_no_user_namespace_can_be_made():
    needs_root()
    # The number is that of the new user namespace, not of the machine.
    stage = "echo 0 > /proc/sys/user/max_user_namespaces"
    rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]
    script = f'set -e; {stage}; exec "$@"'
    enter = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    hidden = f"{CGROUPS_READ_ONLY}; {script}"
    found = probe(*enter, hidden, "sh", *rights)
    missing = ["cgroup", "pid_namespace", "network_namespace", "ipc_namespace", "identity"]
    check(found, "container", [*missing, "empty_root", "worker_pid_namespace"])
    assert "stay root" in found["layers"]["identity"]["detail"]


def test_a_security_module_that_takes_the_rights_of_a_user_namespace_away():
    found = probe(*as_other_user(), *narrow("but-user"))
    check(found, "container", ["cgroup", *NAMESPACES])
    assert "in a user namespace" in found["layers"]["pid_namespace"]["detail"]


def test_a_security_module_that_refuses_the_maps_of_a_user_namespace():
    user = as_other_user()
    assert user[:4] == ["unshare", "--mount", "sh", "-c"]
    user[4] = f"mount -o remount,bind,ro /proc; {user[4]}"
    found = probe(*user, *narrow("but-user"))
    check(found, "container", ["cgroup", *NAMESPACES])


@pytest.mark.parametrize("layer", ["landlock", "rlimits", "no_new_privs"])
def test_what_every_named_level_or_all_but_the_lowest_demand(layer):
    level = "minimal" if layer == "landlock" else "reduced"
    without = frozenset({layer})
    if layer == "no_new_privs" and os.geteuid() != 0:
        pytest.skip("without it only root may install a filter")
    with SyncPool(SandboxPolicy(num_workers=1, spares=1), _without=without) as pool:
        name, _, missing = pool.capabilities["level"].partition(", without ")
        assert (name, layer in missing.split(", ")) == (level, True)
        with pool.session("class AEnv:\n def reset(self, s): return open('/etc/passwd')", 0) as s:
            assert s.reset().outcome is Outcome.REFUSED_CALL
    policy = SandboxPolicy(level="container", num_workers=1, spares=1)
    with pytest.raises(SandboxError, match=f"layer {layer} is missing"):
        SyncPool(policy, _without=without).start()


def test_a_level_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(ValueError, match=r"sandbox\.level='Strict'.*\"rootless\""):
        SandboxPolicy(level="Strict")


def test_the_inside_of_the_jail_does_not_know_the_name_of_the_machine():
    if not probe_capabilities()["layers"]["ipc_namespace"]["ok"]:
        pytest.skip("no UTS namespace here")
    source = "class AEnv:\n def reset(self, s): return __import__('os').uname().nodename, {}"
    with SyncPool(SandboxPolicy(num_workers=1, spares=1)) as pool, pool.session(source, 0) as s:
        assert s.reset().observation == "jail"
