"""A host that runs out of descriptors: refused by name, and whole again afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import resource, sys
from spade_async.errors import SandboxError
from spade_async.sandbox import SandboxPolicy, SyncPool
SOURCE = "class AEnv:\\n def reset(self, seed): return 'x', {}\\n"
backend, most = sys.argv[1], int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
policy = SandboxPolicy(num_workers=64, spares=2, backend=backend,
                       allow_unsafe=backend == "subprocess")
refused, sessions = 0, []
with SyncPool(policy) as pool:
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    for seed in range(40):
        session = pool.session(SOURCE, seed)
        try:
            session.__enter__()
            sessions.append(session)
        except SandboxError as error:
            refused += 1
            assert "worker" in str(error), error
            if refused > 2: break
    assert refused and len(sessions) > 4, (refused, len(sessions))
    for session in sessions: session.close()
    with pool.session(SOURCE, 0) as session:
        assert session.reset().ok
print("recovered")
"""


def check_recovery(backend: str, most: int) -> None:
    """Open sessions with at most that many descriptors: some are refused, then all goes on."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, backend, str(most)], cwd=ROOT, capture_output=True,
        text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.stdout == "recovered\n", done.stderr
