"""The process cores as an ordinary user, and as root with an interpreter that all may read."""

import json
import subprocess
import sys

import pytest

from tests.backends.policies import BACKENDS
from tests.support.other_user import ROOT, as_other_user

pytestmark = pytest.mark.timeout(120)

PROGRAM = """
import json, os, sys
from spade_async.sandbox import SandboxPolicy, SyncPool
backend = sys.argv[1]
policy = SandboxPolicy(num_workers=2, spares=1, backend=backend,
                       allow_unsafe=backend == "subprocess")
with SyncPool(policy) as pool:
    outcomes = []
    for body in ("return 'fine', {}", "open('/etc/shadow')", "while True: pass", "os._exit(3)",
                 "bytearray(1 << 40)"):
        source = "import os\\nclass AEnv:\\n def reset(self, s):\\n  " + body
        with pool.session(source, 0) as session:
            outcomes.append(session.reset().outcome.value)
    print(json.dumps([os.getuid(), pool.capabilities["level"], outcomes,
                      pool.capabilities["layers"].get("identity", {}).get("detail")]))
"""


@pytest.mark.parametrize("user", [65534, 0])
@pytest.mark.parametrize("backend", BACKENDS[1:], indirect=True)
def test_the_outcomes_do_not_depend_on_the_user(backend, user):
    command = [*as_other_user(user), sys.executable, "-B", "-c", PROGRAM, backend]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    if done.returncode != 0 and "mount" in done.stderr and "Sandbox" not in done.stderr:
        pytest.skip(f"cannot set the stage here: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr[-2000:]
    caller, level, outcomes, identity = json.loads(done.stdout)
    assert caller == user
    assert outcomes[0] == "finished"
    assert outcomes[1] in ("exception", "refused_call") or backend == "subprocess"
    assert outcomes[2:] == ["timed_out", "crashed", "over_memory"]
    if backend == "nsjail":
        assert identity == "user 65534 of the host"
        assert level == "nsjail", "with an interpreter that all may read every layer holds"
    else:
        assert level == "none"
