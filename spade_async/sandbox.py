"""Run untrusted environments in the jail: an asyncio facade (`Pool`) and a synchronous one.

What the untrusted code does is always a `Reply` with a typed `Outcome`; exceptions are our own
faults (`SandboxError`, `SandboxBusy`) or the caller's (`ValueError`). The jail itself is the
native module; this file checks arguments and connects completions to whoever waits for them.
Left out on purpose: what the replies mean for validation, returns or rewards.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from spade_async import _sandbox_rs
from spade_async.errors import SandboxBusy, SandboxError
from spade_async.jail_backends import Core, make_core
from spade_async.sandbox_policy import SandboxPolicy, check_seed, check_text, limits_text
from spade_async.types import CallReport, Outcome, Reply

__all__ = [
    "Pool",
    "SandboxPolicy",
    "Session",
    "SyncPool",
    "SyncSession",
    "probe_capabilities",
]

_RESET, _STEP, _HINT = 1, 2, 3
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_NOT_STARTED = Reply(Outcome.FINISHED, detail="not loaded yet")


@contextlib.contextmanager
def _faults() -> Any:
    """Turn faults of the native core into ours."""
    try:
        yield
    except _sandbox_rs.JailBusy as cause:
        raise SandboxBusy(str(cause)) from None
    except _sandbox_rs.JailError as cause:
        raise SandboxError(str(cause)) from None


def _reply(answer: tuple[Any, ...]) -> Reply:
    outcome, text, reward, terminated, truncated, detail, wall_s, cpu_s, num_bytes = answer
    report = CallReport(wall_s, cpu_s, num_bytes)
    return Reply(_OUTCOMES[outcome], text, reward, terminated, truncated, detail, report)


class _Base:
    """What both facades share: the native core, its figures, and its one start."""

    def __init__(
        self, policy: SandboxPolicy | None = None, *, _without: frozenset[str] = frozenset()
    ) -> None:
        self.policy = policy if policy is not None else SandboxPolicy()
        self._limits = limits_text(self.policy, _sandbox_rs.__file__, _without)
        self._core: Core | None = None
        self._closed = False

    def _new_core(self) -> Core:
        with _faults():
            return make_core(self.policy, self._limits, _sandbox_rs)

    def _started(self) -> Core:
        if self._core is None:
            state = "closed; start a new one" if self._closed else "not started; enter it first"
            raise SandboxError(f"sandbox pool is {state}")
        return self._core

    @property
    def capabilities(self) -> dict[str, Any]:
        """Level and layers that hold on this machine, each found out by doing it."""
        return self._started().capabilities()

    def stats(self) -> dict[str, int | float]:
        """Counters since the start (by outcome too) and the gauges live, spare, waiting."""
        return dict(self._started().stats())

    def drain_latencies(self) -> list[float]:
        """Wall seconds of each call since the last drain; at most 65,536 are kept."""
        return self._started().drain_latencies()


class Pool(_Base):
    """Workers for one event loop: ``async with Pool(policy) as pool``.

    Sessions beyond `num_workers` wait; beyond `queue` waiters, entering raises `SandboxBusy`.
    """

    _loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start broker and template; about half a second. Once per pool.

        Raises:
            SandboxError: a layer that must hold is missing, or the machinery cannot start.
        """
        if self._core is not None or self._closed:
            raise SandboxError("sandbox pool was already started; make a new one")
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._core = await asyncio.to_thread(self._new_core)
        self._fd = self._core.done_fd()
        self._loop.add_reader(self._fd, self._drain)

    async def close(self) -> None:
        """End every session and process; returns when none is left. Idempotent."""
        core, self._core, self._closed = self._core, None, True
        if core is None:
            return
        self._loop.remove_reader(self._fd)
        try:
            await asyncio.to_thread(core.close)
        finally:
            for operation, done in core.drain():
                self._settle(operation, done)
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(SandboxError("sandbox pool was closed during the call"))
            self._waiting.clear()

    def session(self, source: str, seed: int) -> Session:
        """A fresh worker for one source and seed; entering it acquires and loads.

        Raises:
            ValueError: the source or the seed cannot be sent.
        """
        check_text("source", source, self.policy.source_bytes)
        return Session(self, source, check_seed(seed))

    def _drain(self) -> None:
        if self._core is not None:
            for operation, done in self._core.drain():
                self._settle(operation, done)

    def _settle(self, operation: int, done: Any) -> None:
        future = self._waiting.pop(operation, None)
        if future is None or future.done():
            return
        if isinstance(done, str):
            future.set_exception(SandboxError(done))
        else:
            future.set_result(_reply(done))

    async def _finished(self, operation: int) -> Reply:
        # Completions are taken on this loop's thread alone, so none can come before this line.
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[operation] = future
        try:
            return await future
        finally:
            self._waiting.pop(operation, None)


class Session:
    """One episode's worker. Use as ``async with pool.session(source, seed) as session``.

    After the worker is dead or the load failed, every call returns that same terminal reply.
    """

    loaded: Reply
    """Outcome of executing the source and constructing the environment."""

    def __init__(self, pool: Pool, source: str, seed_hex: str) -> None:
        self.loaded = _NOT_STARTED
        self._pool, self._source, self._seed_hex = pool, source, seed_hex
        self._number: int | None = None

    async def __aenter__(self) -> Self:
        if self._number is not None:
            raise SandboxError("a session is entered once; make a new one")
        with _faults():
            self._number = self._pool._started().open(self._source, self._seed_hex)
        try:
            self.loaded = await self._pool._finished(self._number)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _call(self, kind: int, body: str) -> Reply:
        if self._number is None:
            raise SandboxError("the session is not open; enter it first")
        with _faults():
            operation = self._pool._started().call(self._number, kind, body)
        return await self._pool._finished(operation)

    async def reset(self, seed: int | None = None) -> Reply:
        """Start an episode; `seed` None takes the session's."""
        return await self._call(_RESET, self._seed_hex if seed is None else check_seed(seed))

    async def step(self, text: str) -> Reply:
        """One action. Before reset or after the end: BAD_VALUE with a detail "order: ..."."""
        check_text("action", text, self._pool.policy.action_bytes)
        return await self._call(_STEP, text)

    async def hint(self) -> Reply:
        """The privileged hint in `observation`; "" with detail "no hint" when there is none."""
        return await self._call(_HINT, "")

    async def close(self) -> None:
        """Give the worker up. Never waits for the untrusted code. Idempotent."""
        number, self._number = self._number, None
        core = self._pool._core
        if number is not None and core is not None:
            with _faults():
                core.release(number)


class SyncPool(_Base):
    """The same pool for plain threads: ``with SyncPool(policy) as pool``."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Start broker and template. Once per pool."""
        if self._core is not None or self._closed:
            raise SandboxError("sandbox pool was already started; make a new one")
        self._core = self._new_core()

    def close(self) -> None:
        """End every session and process; returns when none is left. Idempotent."""
        core, self._core, self._closed = self._core, None, True
        if core is not None:
            core.close()

    def session(self, source: str, seed: int) -> SyncSession:
        """A fresh worker for one source and seed; entering it acquires and loads."""
        check_text("source", source, self.policy.source_bytes)
        return SyncSession(self, source, check_seed(seed))


class SyncSession:
    """`Session` with calls that block; the interpreter is free for other threads meanwhile."""

    loaded: Reply
    """Outcome of executing the source and constructing the environment."""

    def __init__(self, pool: SyncPool, source: str, seed_hex: str) -> None:
        self.loaded = _NOT_STARTED
        self._pool, self._source, self._seed_hex = pool, source, seed_hex
        self._number: int | None = None

    def __enter__(self) -> Self:
        if self._number is not None:
            raise SandboxError("a session is entered once; make a new one")
        core = self._pool._started()
        with _faults():
            self._number = core.open(self._source, self._seed_hex)
        try:
            self.loaded = self._wait(core, self._number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @staticmethod
    def _wait(core: Core, operation: int) -> Reply:
        with _faults():
            done = core.wait(operation)
        if isinstance(done, str):
            raise SandboxError(done)
        return _reply(done)

    def _call(self, kind: int, body: str) -> Reply:
        if self._number is None:
            raise SandboxError("the session is not open; enter it first")
        core = self._pool._started()
        with _faults():
            operation = core.call(self._number, kind, body)
        return self._wait(core, operation)

    def reset(self, seed: int | None = None) -> Reply:
        """Start an episode; `seed` None takes the session's."""
        return self._call(_RESET, self._seed_hex if seed is None else check_seed(seed))

    def step(self, text: str) -> Reply:
        """One action. Before reset or after the end: BAD_VALUE with a detail "order: ..."."""
        check_text("action", text, self._pool.policy.action_bytes)
        return self._call(_STEP, text)

    def hint(self) -> Reply:
        """The privileged hint in `observation`; "" with detail "no hint" when there is none."""
        return self._call(_HINT, "")

    def close(self) -> None:
        """Give the worker up. Never waits for the untrusted code. Idempotent."""
        number, self._number = self._number, None
        core = self._pool._core
        if number is not None and core is not None:
            with _faults():
                core.release(number)


def probe_capabilities(level: str = "auto") -> dict[str, Any]:
    """What the jail can enforce here; each layer is tried by doing it, remedies are named.

    Raises:
        SandboxError: the jail refuses to start at this level.
    """
    with SyncPool(SandboxPolicy(level=level, num_workers=1, spares=1)) as pool:
        return pool.capabilities
