"""Run untrusted environments in the jail: an asyncio facade (`Pool`) and a synchronous one.

What the untrusted code does is always a `Reply` with a typed `Outcome`; exceptions are our own
faults (`SandboxError`, `SandboxBusy`) or the caller's (`ValueError`). The jail itself is the
native module; this file connects its completions to whoever waits for them on an event loop.
Left out on purpose: what the replies mean for validation, returns or rewards.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from spade_async.errors import SandboxBusy, SandboxError
from spade_async.sandbox_core import (
    HINT,
    NOT_STARTED,
    PING,
    RESET,
    STEP,
    PoolBase,
    faults,
    outcome_of,
    resources_of,
)
from spade_async.sandbox_policy import SandboxPolicy, check_seed, check_text, reset_body
from spade_async.sandbox_profiles import Profile, check_profile, load_profiles
from spade_async.sandbox_records import Event, Resources
from spade_async.sandbox_sync import SyncPool, SyncSession, SyncSourceTemplate
from spade_async.types import Outcome, Reply

__all__ = [
    "Event",
    "Outcome",
    "Pool",
    "Profile",
    "Reply",
    "Resources",
    "SandboxBusy",
    "SandboxError",
    "SandboxPolicy",
    "Session",
    "SourceTemplate",
    "SyncPool",
    "SyncSession",
    "SyncSourceTemplate",
    "check_profile",
    "load_profiles",
    "probe_capabilities",
]


class Pool(PoolBase):
    """Workers for one event loop: ``async with Pool(policy) as pool``.

    Sessions beyond `num_workers` wait; beyond `queue` waiters, entering raises `SandboxBusy`.
    """

    _blocking = False
    _loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start broker and templates; about half a second. Once per pool.

        Raises:
            SandboxError: a layer that must hold is missing, or the machinery cannot start.
        """
        if self._core is not None or self._closed:
            raise SandboxError("sandbox pool was already started; make a new one")
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Reply | SandboxError]] = {}
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
                    future.set_result(SandboxError("sandbox pool was closed during the call"))
            self._waiting.clear()

    def session(
        self, source: str, seed: int, *, profile: str | None = None, forkable: bool = False
    ) -> Session:
        """A fresh worker for one source and seed (an integer >= 0); entering it acquires and loads.

        Raises:
            ValueError: the source or the seed cannot be sent, the pool has no such profile, or
                `forkable` is asked of one with files or threads.
        """
        check_text("source", source, self.policy.source_bytes)
        number = self._profile(profile, forkable)
        return Session(self, source, check_seed(seed), number, forkable)

    async def step_many(self, steps: Iterable[tuple[Session, str]]) -> list[Reply | SandboxError]:
        """One step each on many sessions; all are sent before the first answer is awaited.

        Returns the answers in the order of `steps`. An entry that failed by a fault of ours is
        that `SandboxError`; what untrusted code did is a reply as ever.

        Raises:
            ValueError: a text cannot be sent, a session occurs twice or is another pool's.
            SandboxError: a session is not open. In these cases nothing was sent.
        """
        calls = self._checked_steps(steps, Session)
        core, flights = self._here(), []
        for number, text in calls:
            try:
                with faults():
                    flights.append(self._future(core.call(number, STEP, text)))
            except SandboxError as fault:
                future = self._loop.create_future()
                future.set_result(fault)
                flights.append(future)
        try:
            if flights:
                await asyncio.wait(flights)
        except asyncio.CancelledError:
            self._drain()  # what has been answered is not unfinished
            for (number, _), flight in zip(calls, flights, strict=True):
                if flight.cancel():
                    core.cancel(number)
            raise
        return [flight.result() for flight in flights]

    async def source_template(self, source: str, *, profile: str | None = None) -> SourceTemplate:
        """Parse and construct a source once; episodes are forked from it.

        What the source does before the fork (module level, constructor) all its episodes share,
        the objects it made included; `random` is seeded anew in each. Raises as opening a session
        does; a source that fails is told by `loaded`.
        """
        root = self.session(source, 0, profile=profile, forkable=True)
        await root.__aenter__()
        return SourceTemplate(root)

    def _drain(self) -> None:
        if self._core is not None:
            for operation, done in self._core.drain():
                self._settle(operation, done)

    def _settle(self, operation: int, done: Any) -> None:
        future = self._waiting.pop(operation, None)
        if future is not None and not future.done():
            future.set_result(outcome_of(done))

    def _here(self) -> Any:
        """The core, for a caller on the pool's own loop."""
        core = self._started()
        if asyncio.get_running_loop() is not self._loop:
            raise SandboxError(
                "sandbox pool belongs to another event loop; start one pool per loop"
            )
        return core

    def _future(self, operation: int) -> asyncio.Future[Reply | SandboxError]:
        # Completions are taken on this loop's thread alone, so none can come before this line.
        future: asyncio.Future[Reply | SandboxError] = self._loop.create_future()
        self._waiting[operation] = future
        return future

    async def _finished(self, operation: int) -> Reply:
        try:
            done = await self._future(operation)
        finally:
            self._waiting.pop(operation, None)
        if isinstance(done, SandboxError):
            raise done
        return done


class Session:
    """One episode's worker. Use as ``async with pool.session(source, seed) as session``.

    After the worker is dead or the load failed, every call returns that same terminal reply. A task
    that is cancelled during a call ends the worker: what it had done by then cannot be known.

    Entering raises `SandboxBusy` when the queue is full. Entering and every call raise
    `SandboxError` when no worker could be started, the broker died, the pool was closed, the
    session is not open or was cancelled, or another call of it is in flight.
    """

    loaded: Reply
    """Outcome of executing the source and constructing the environment."""

    def __init__(
        self, pool: Pool, source: str, seed_hex: str, profile: int, forkable: bool
    ) -> None:
        self.loaded = NOT_STARTED
        self._pool, self._seed_hex = pool, seed_hex
        self._plan: tuple[str, str, int, bool] = (source, seed_hex, profile, forkable)
        self._forked = False
        self._was_open = False
        self._number: int | None = None

    async def __aenter__(self) -> Self:
        if self._forked:
            return self
        if self._number is not None or self._was_open:
            raise SandboxError("a session is entered once; make a new one")
        self._was_open = True
        with faults():
            self._number = self._pool._here().open(*self._plan)
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

    def _open_number(self) -> int:
        if self._number is None:
            todo = " any more; make a new one" if self._was_open else "; enter it first"
            raise SandboxError(f"the session is not open{todo}")
        return self._number

    async def _call(self, kind: int, body: str) -> Reply:
        number, core = self._open_number(), self._pool._here()
        with faults():
            operation = core.call(number, kind, body)
        try:
            return await self._pool._finished(operation)
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def reset(self, seed: int | None = None, *, unseeded: bool = False) -> Reply:
        """Start an episode; `seed` None takes the session's.

        With `unseeded` the environment's `reset` is called without any argument, and chance goes on
        from the session's seed: for programs that have one instance for this case.

        Raises:
            ValueError: a seed that cannot be one, or one beside `unseeded`.
        """
        return await self._call(RESET, reset_body(self._seed_hex, seed, unseeded))

    async def step(self, text: str) -> Reply:
        """One action. Before reset or after the end: BAD_VALUE with a detail "order: ...".

        Raises:
            ValueError: more than `action_bytes` in UTF-8, or a lone surrogate.
        """
        check_text("action", text, self._pool.policy.action_bytes)
        return await self._call(STEP, text)

    async def hint(self) -> Reply:
        """The privileged hint in `observation`; "" with detail "no hint" when there is none."""
        return await self._call(HINT, "")

    async def ping(self) -> Reply:
        """Nothing, answered by the worker: tells that it lives and how far away it is."""
        return await self._call(PING, "")

    async def fork(self, seed: int | None = None) -> Session:
        """A copy of the live episode, an open session of its own; close it like any other.

        Everything the environment has made so far is copied; nothing is shared afterwards but the
        memory limit of the family and its fate: when the first session of a family dies by its own
        doing, so do the copies. Closing it does not end them.

        Args:
            seed: seeds `random` and `numpy.random` of the copy; None goes on with copied state.

        Raises:
            ValueError: a seed that cannot be one.
            SandboxError: the session was not opened with `forkable=True`, or the jail failed.
            SandboxBusy: no room for another session.
        """
        number, core = self._open_number(), self._pool._here()
        copy = Session(self._pool, *self._plan)
        copy._forked = True
        if seed is not None:
            copy._seed_hex = check_seed(seed)
        with faults():
            copy._number = core.fork(number, "" if seed is None else copy._seed_hex)
        try:
            copy.loaded = await self._pool._finished(copy._number)
        except BaseException:
            await copy.close()
            raise
        return copy

    def __del__(self) -> None:
        # A session that was dropped unclosed would keep its place in the pool for ever. The cores
        # in Python are left out: the collector may come by while one holds its lock.
        number, core = getattr(self, "_number", None), self._pool._core
        if number is not None and core is not None and self._pool.policy.backend == "native":
            with contextlib.suppress(SandboxError), faults():
                core.release(number)

    def cancel(self) -> None:
        """End the worker now; a call in flight raises `SandboxError`."""
        core = self._pool._core
        if self._number is not None and core is not None:
            with faults():
                core.cancel(self._number)

    def resources(self) -> Resources | None:
        """What the session has used so far; None once its worker is gone."""
        return resources_of(self._pool._core, self._number)

    async def close(self) -> None:
        """Give the worker up. Never waits for the untrusted code. Idempotent."""
        self._release()

    def _release(self) -> None:
        number, self._number = self._number, None
        core = self._pool._core
        if number is not None and core is not None:
            with faults():
                core.release(number)


class SourceTemplate:
    """A source that is parsed and constructed once: ``await pool.source_template(source)``."""

    def __init__(self, root: Session) -> None:
        self._root = root
        self._turn = asyncio.Lock()

    @property
    def loaded(self) -> Reply:
        """Outcome of executing the source and constructing the environment, once for all."""
        return self._root.loaded

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def session(self, seed: int) -> Session:
        """A seeded fork of the template. It is open: close it, or use ``async with``.

        Tasks that ask at the same time take turns. Raises as `Session.fork`.
        """
        # A task that is cancelled must not leave the template in the middle of a fork.
        fork = asyncio.ensure_future(self._fork(seed))
        try:
            return await asyncio.shield(fork)
        except asyncio.CancelledError:
            fork.add_done_callback(_release_copy)
            raise

    async def _fork(self, seed: int) -> Session:
        async with self._turn:
            return await self._root.fork(seed)

    async def close(self) -> None:
        """Give the template up; episodes forked from it go on. Idempotent."""
        await self._root.close()


def _release_copy(fork: asyncio.Future[Session]) -> None:
    if not fork.cancelled() and fork.exception() is None:
        fork.result()._release()


def probe_capabilities(level: str = "auto") -> dict[str, Any]:
    """What the jail can enforce here; each layer is tried by doing it, remedies are named.

    Raises:
        SandboxError: the jail refuses to start at this level.
    """
    with SyncPool(SandboxPolicy(level=level, num_workers=1, spares=1)) as pool:
        return pool.capabilities
