"""Helpers of the jail's tests: one call into a fresh pool, and a body for `step`."""

from collections.abc import Callable, Iterator

import pytest

from spade_async.sandbox import SandboxPolicy, SyncPool
from spade_async.types import Reply
from tests.support.jail_steps import step_in

POLICY = SandboxPolicy(
    num_workers=4, spares=2, wall_s_per_call=2.0, cpu_s_per_call=0.5, load_wall_s=2.0,
    memory_bytes=64 << 20,
)  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> Iterator[SyncPool]:
    """A pool of one module's tests: others count processes and must not find it."""
    with SyncPool(POLICY) as pool:
        yield pool


@pytest.fixture
def step(pool: SyncPool) -> Callable[[str], Reply]:
    """Run statements as the body of `step` in a fresh worker and give the reply of that call."""

    def run(body: str, *, head: str = "", on: SyncPool = pool) -> Reply:
        return step_in(on, body, head)

    return run
