"""One jailed session as use cases see it: waits while the pool is busy, meters what it cost.

The pool is taken by its shape (`Jail`), so tests can script replies without running any code. A
full queue (`SandboxBusy`) is ours and passes: the session is asked for again. Every other
`SandboxError` goes up; what the program did is in the replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from spade_async.errors import SandboxBusy
from spade_async.types import Reply

_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 1.0


class JailSession(Protocol):
    """A program loaded in a fresh worker with one instance seed."""

    @property
    def loaded(self) -> Reply:
        """What became of loading the program."""

    async def reset(self, seed: int | None = None, *, unseeded: bool = False) -> Reply:
        """First observation of an instance, the session's when None; may be called again.

        With `unseeded` the program is called without a seed, as the reference does: chance goes on
        from the session's seed, and a program with a fixed instance for this case shows that one.
        """

    async def step(self, action: str) -> Reply:
        """Observation, reward and flags."""

    async def hint(self) -> Reply:
        """The program's hint for this instance, as `observation`."""


class Jail(Protocol):
    """The part of `spade_async.sandbox.Pool` that use cases need."""

    def session(self, source: str, seed: int) -> AbstractAsyncContextManager[Any]:
        """Lease a fresh worker with the program loaded; the seed is the instance's."""


@dataclass(slots=True)
class JailUse:
    """What a task cost in the jail, added up over its sessions."""

    calls: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    busy: int = 0
    """Times a session was refused because the queue was full, then granted."""
    outcomes: dict[str, int] = field(default_factory=dict)

    def add(self, reply: Reply) -> None:
        """Count one call."""
        self.calls += 1
        self.wall_s += reply.report.wall_s
        self.cpu_s += reply.report.cpu_s or 0.0
        name = reply.outcome.value
        self.outcomes[name] = self.outcomes.get(name, 0) + 1

    def merge(self, other: JailUse) -> None:
        """Add another account to this one."""
        self.calls += other.calls
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s
        self.busy += other.busy
        for name, count in other.outcomes.items():
            self.outcomes[name] = self.outcomes.get(name, 0) + count

    def as_message(self) -> dict[str, Any]:
        """The `jail` field of the result messages."""
        return {
            "calls": self.calls,
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
            "busy": self.busy,
            "outcomes": dict(self.outcomes),
        }


class MeteredSession:
    """A jail session that adds each of its replies to a `JailUse`."""

    def __init__(self, inner: JailSession, use: JailUse) -> None:
        self._inner = inner
        self._use = use
        self.loaded: Reply = inner.loaded
        use.add(self.loaded)

    async def reset(self, seed: int | None = None, *, unseeded: bool = False) -> Reply:
        """See `JailSession.reset`."""
        if unseeded:
            return await self._metered(self._inner.reset(unseeded=True))
        call = self._inner.reset() if seed is None else self._inner.reset(seed)
        return await self._metered(call)

    async def step(self, action: str) -> Reply:
        """See `JailSession.step`."""
        return await self._metered(self._inner.step(action))

    async def hint(self) -> Reply:
        """See `JailSession.hint`."""
        return await self._metered(self._inner.hint())

    async def _metered(self, call: Awaitable[Reply]) -> Reply:
        reply = await call
        self._use.add(reply)
        return reply


@asynccontextmanager
async def open_session(
    pool: Jail, source: str, seed: int, use: JailUse
) -> AsyncIterator[MeteredSession]:
    """A metered session; waits with growing pauses (at most 1 s) while the pool is busy.

    Raises:
        SandboxError: the jail itself failed. Never for what the program does.
    """
    pause_s = _FIRST_WAIT_S
    while True:
        lease = pool.session(source, seed)
        try:
            inner = await lease.__aenter__()
            break
        except SandboxBusy:
            use.busy += 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_WAIT_S)
    try:
        yield MeteredSession(inner, use)
    except BaseException as error:
        if not await lease.__aexit__(type(error), error, error.__traceback__):
            raise
    else:
        await lease.__aexit__(None, None, None)
