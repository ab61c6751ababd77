"""One pool per backend for the contract suite; nsjail is skipped only where it cannot run."""

import os
from collections.abc import Callable, Iterator

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import SyncPool
from spade_async.types import Reply
from tests.backends.policies import policy
from tests.support.jail_steps import step_in


@pytest.fixture(scope="session")
def why_not() -> dict[str, str]:
    """Backends that cannot run here, and why. Found out by running each once."""
    reasons = {}
    try:
        SyncPool(policy("nsjail", num_workers=1, spares=1)).__enter__().close()
    except SandboxError as fault:
        reasons["nsjail"] = str(fault)
    return reasons


@pytest.fixture(scope="module")
def pools(why_not: dict[str, str]) -> Iterator[dict[str, SyncPool]]:
    """Pools by backend, started when first asked for."""
    started: dict[str, SyncPool] = {}
    yield started
    for pool in started.values():
        pool.close()


@pytest.fixture
def backend(request: pytest.FixtureRequest, why_not: dict[str, str]) -> str:
    """The backend under test."""
    name = str(getattr(request, "param", "native"))
    if name in why_not:
        if os.environ.get("SPADE_REQUIRE_NSJAIL") == "1":
            pytest.fail(f"backend {name} is demanded here and cannot run: {why_not[name]}")
        pytest.skip(f"backend {name} cannot run here: {why_not[name]}")
    return name


@pytest.fixture
def pool(backend: str, pools: dict[str, SyncPool]) -> SyncPool:
    """A pool of that backend, shared by all tests."""
    if backend not in pools:
        pools[backend] = SyncPool(policy(backend))
        pools[backend].start()
    return pools[backend]


@pytest.fixture
def step(pool: SyncPool) -> Callable[..., Reply]:
    """Run statements as the body of `step` in a fresh child and give the reply of that call."""

    def run(body: str, *, head: str = "", text: str = "go", on: SyncPool = pool) -> Reply:
        return step_in(on, body, head, text)

    return run


@pytest.fixture
def fd(step: Callable[..., Reply]) -> int:
    """Descriptor on which a child's replies leave: the only one, or the second of two pipes."""
    reply = step("import os\nos.get_inheritable(1)")
    return 1 if reply.ok else 0
