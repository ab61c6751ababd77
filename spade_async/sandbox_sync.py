"""The synchronous front of the jail: the calling thread talks to the worker itself.

The interpreter is free for other threads during a call, and Ctrl-C ends it (and its worker).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from typing import Any, Self

from spade_async.errors import SandboxError
from spade_async.sandbox_core import (
    HINT,
    NOT_STARTED,
    PING,
    RESET,
    STEP,
    JailError,
    PoolBase,
    fault_of,
    faults,
    outcome_of,
    resources_of,
    value_of,
)
from spade_async.sandbox_policy import check_seed, check_text, reset_body
from spade_async.sandbox_records import Resources
from spade_async.types import Reply


class SyncPool(PoolBase):
    """Workers for plain threads: ``with SyncPool(policy) as pool``."""

    _blocking = True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Start broker and templates; about half a second. Once per pool.

        Raises:
            SandboxError: a layer that must hold is missing, or the machinery cannot start.
        """
        if self._core is not None or self._closed:
            raise SandboxError("sandbox pool was already started; make a new one")
        self._core = self._new_core()

    def close(self) -> None:
        """End every session and process; returns when none is left. Idempotent."""
        core, self._core, self._closed = self._core, None, True
        if core is not None:
            core.close()

    def session(
        self, source: str, seed: int, *, profile: str | None = None, forkable: bool = False
    ) -> SyncSession:
        """A fresh worker for one source and seed (an integer >= 0); entering it acquires and loads.

        Raises:
            ValueError: the source or the seed cannot be sent, the pool has no such profile, or
                `forkable` is asked of one with files or threads.
        """
        check_text("source", source, self.policy.source_bytes)
        number = self._profile(profile, forkable)
        return SyncSession(self, source, check_seed(seed), number, forkable)

    def acquire(self, *, profile: str | None = None) -> SyncSession:
        """A worker with nothing loaded, in an open session; `ping` is all that it answers well.

        For measuring, and for whoever wants to know that a worker can be had now.

        Raises:
            ValueError: the pool has no such profile.
            SandboxBusy: the queue is full.
            SandboxError: no worker could be started, or the pool is not open.
        """
        number = self._profile(profile)
        session = SyncSession(self, "", "0", number, False)
        with faults():
            session._number, fault = self._started().acquire_now(number)
        session._is_open = True
        if fault is not None:
            session.close()
            raise SandboxError(fault)
        return session

    def step_many(self, steps: Iterable[tuple[SyncSession, str]]) -> list[Reply | SandboxError]:
        """One step each on many sessions; all are sent before the first answer is read.

        Returns the answers in the order of `steps`. An entry that failed by a fault of ours is
        that `SandboxError`; what untrusted code did is a reply as ever.

        Raises:
            ValueError: a text cannot be sent, a session occurs twice or is another pool's.
            SandboxError: a session is not open. In these cases nothing was sent.
        """
        calls = self._checked_steps(steps, SyncSession)
        with faults():
            done = self._started().step_many(calls)
        return [outcome_of(one) for one in done]

    def source_template(self, source: str, *, profile: str | None = None) -> SyncSourceTemplate:
        """Parse and construct a source once; episodes are forked from it.

        What the source does before the fork (module level, constructor) all its episodes share,
        the objects it made included; `random` is seeded anew in each. Raises as opening a session
        does; a source that fails is told by `loaded`.
        """
        root = self.session(source, 0, profile=profile, forkable=True)
        return SyncSourceTemplate(root.__enter__())


class SyncSession:
    """One episode's worker. Use as ``with pool.session(source, seed) as session``.

    After the worker is dead or the load failed, every call returns that same terminal reply.

    Entering raises `SandboxBusy` when the queue is full. Entering and every call raise
    `SandboxError` when no worker could be started, the broker died, the pool was closed, the
    session is not open or was cancelled, or another call of it is in flight.
    """

    loaded: Reply
    """Outcome of executing the source and constructing the environment."""

    def __init__(
        self, pool: SyncPool, source: str, seed_hex: str, profile: int, forkable: bool
    ) -> None:
        self.loaded = NOT_STARTED
        self._pool, self._seed_hex = pool, seed_hex
        self._plan: tuple[str, str, int, bool] = (source, seed_hex, profile, forkable)
        self._action_bytes = pool.policy.action_bytes
        self._is_open = False
        self._was_open = False
        self._number: int | None = None

    def __enter__(self) -> Self:
        if not self._is_open:
            self._open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self) -> None:
        if self._number is not None or self._was_open:
            raise SandboxError("a session is entered once; make a new one")
        self._was_open = True
        with faults():
            self._number, done = self._pool._started().open_now(*self._plan)
        try:
            self.loaded = value_of(done)
        except BaseException:
            self.close()
            raise

    def _open_number(self) -> int:
        if self._number is None:
            todo = " any more; make a new one" if self._was_open else "; enter it first"
            raise SandboxError(f"the session is not open{todo}")
        return self._number

    def _call(self, kind: int, body: str) -> Reply:
        # Every line here is part of each step's time.
        number, core = self._number, self._pool._core
        if number is None or core is None:
            number, core = self._open_number(), self._pool._started()
        try:
            done = core.call_now(number, kind, body)
        except JailError as error:
            raise fault_of(error) from None
        return done if type(done) is Reply else value_of(done)

    def reset(self, seed: int | None = None, *, unseeded: bool = False) -> Reply:
        """Start an episode; `seed` None takes the session's.

        With `unseeded` the environment's `reset` is called without any argument, and chance goes on
        from the session's seed: for programs that have one instance for this case.

        Raises:
            ValueError: a seed that cannot be one, or one beside `unseeded`.
        """
        return self._call(RESET, reset_body(self._seed_hex, seed, unseeded))

    def step(self, text: str) -> Reply:
        """One action. Before reset or after the end: BAD_VALUE with a detail "order: ...".

        Raises:
            ValueError: more than `action_bytes` in UTF-8, or a lone surrogate.
        """
        if type(text) is not str or len(text) > self._action_bytes or not text.isascii():
            check_text("action", text, self._action_bytes)
        return self._call(STEP, text)

    def hint(self) -> Reply:
        """The privileged hint in `observation`; "" with detail "no hint" when there is none."""
        return self._call(HINT, "")

    def ping(self) -> Reply:
        """Nothing, answered by the worker: tells that it lives and how far away it is."""
        return self._call(PING, "")

    def fork(self, seed: int | None = None) -> SyncSession:
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
        number = self._open_number()
        copy = SyncSession(self._pool, *self._plan)
        copy._is_open = True
        if seed is not None:
            copy._seed_hex = check_seed(seed)
        with faults():
            copy._number, done = self._pool._started().fork_now(
                number, "" if seed is None else copy._seed_hex
            )
        try:
            copy.loaded = value_of(done)
        except BaseException:
            copy.close()
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
        """End the worker now, from any thread; a call in flight raises `SandboxError`."""
        core: Any = self._pool._core
        if self._number is not None and core is not None:
            with faults():
                core.cancel(self._number)

    def resources(self) -> Resources | None:
        """What the session has used so far; None once its worker is gone."""
        return resources_of(self._pool._core, self._number)

    def close(self) -> None:
        """Give the worker up. Never waits for the untrusted code. Idempotent."""
        number, self._number = self._number, None
        core = self._pool._core
        if number is not None and core is not None:
            with faults():
                core.release(number)


class SyncSourceTemplate:
    """A source that is parsed and constructed once: ``with pool.source_template(source) as t``.

    It is open already; close it, or use ``with``.
    """

    def __init__(self, root: SyncSession) -> None:
        self._root = root
        self._turn = threading.Lock()

    @property
    def loaded(self) -> Reply:
        """Outcome of executing the source and constructing the environment, once for all."""
        return self._root.loaded

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def session(self, seed: int) -> SyncSession:
        """An episode: a fork of the template, seeded. It is open; close it or use ``with``.

        Threads that ask at the same time take turns. Raises as `SyncSession.fork`.
        """
        with self._turn:
            return self._root.fork(seed)

    def close(self) -> None:
        """Give the template up; episodes forked from it go on. Idempotent."""
        self._root.close()
