"""A jailed environment as a `gymnasium.Env` of texts; see `docs/sandbox_api.md`.

Needs the extra: ``pip install "spade-async[gymnasium]"``. Left out on purpose: rendering, and any
number in place of what failed. What the environment's code did wrong is an `EnvironmentFault` with
the reply in it; a fault of the jail is a `SandboxError` as everywhere.
"""

from __future__ import annotations

import string
from typing import Any

from spade_async.sandbox import SyncPool, SyncSession
from spade_async.types import Reply

try:
    import gymnasium
    from gymnasium.spaces import Text
except ImportError as cause:
    raise ImportError(
        f'{__name__} needs gymnasium ({cause}): pip install "spade-async[gymnasium]"'
    ) from cause

__all__ = ["EnvironmentFault", "JailText", "JailedEnv"]

_OPTIONS = ("hint", "source")
_SEEDS = 2**63 - 1


class EnvironmentFault(Exception):
    """The environment's code failed: it raised, hung, died, or returned what the contract forbids.

    The episode is over without a result; `reset` begins another in a fresh worker.
    """

    def __init__(self, where: str, reply: Reply) -> None:
        super().__init__(f"{where}: {reply.outcome.value}: {reply.detail}")
        self.reply = reply
        """What the jail tells: `outcome`, `detail`, and what the call cost."""


class JailText(Text):
    """Texts of at most `max_length` bytes in UTF-8, of any characters; samples are of ASCII."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:
        """Whether the jail can carry it."""
        if not isinstance(x, str) or len(x) > self.max_length:
            return False
        try:
            return len(x.encode()) <= self.max_length
        except UnicodeEncodeError:  # a lone surrogate
            return False

    def __repr__(self) -> str:
        return f"JailText({self.max_length})"


class JailedEnv(gymnasium.Env[str, str]):
    """One environment of a source; each episode has a fresh worker of the pool.

    The pool stays the caller's: `close` gives the worker back and leaves the pool open.

    Example::

        with SyncPool() as pool:
            env = JailedEnv(pool, source)
            observation, info = env.reset(seed=1)
            observation, reward, terminated, truncated, info = env.step("42")
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (as the base class has it)

    def __init__(self, pool: SyncPool, source: str, *, profile: str | None = None) -> None:
        """Nothing is run before the first `reset`.

        Args:
            pool: an open pool, which may serve many environments.
            source: text with one class whose name ends in Env; see docs/sandbox.md.
            profile: one of the pool's profiles; None is its first.
        """
        self.observation_space = JailText(pool.policy.reply_bytes)
        self.action_space = JailText(pool.policy.action_bytes)
        self.render_mode = None
        self.last_reply: Reply | None = None
        """Reply of the newest call: times, bytes, detail. It is no part of `info`, which is the
        same for the same seed."""
        self._pool, self._source, self._profile = pool, source, profile
        self._session: SyncSession | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode in a fresh worker.

        Args:
            seed: the seed of constructor, `random` and the environment's own reset. None draws one
                from `np_random`, so that one seed at the start fixes all episodes after it.
            options: "source": another source, from this episode on. "hint": true puts the
                privileged hint into ``info["hint"]``, "" when there is none.

        Raises:
            EnvironmentFault: the source cannot be loaded or its reset failed.
            SandboxError: the jail failed; `SandboxBusy` when too many wait for a worker.
            ValueError: an unknown option, or a text or seed that cannot be sent.
        """
        super().reset(seed=seed)
        options = options or {}
        for name in options:
            if name not in _OPTIONS:
                raise ValueError(f"option {name!r}: known are {', '.join(_OPTIONS)}")
        self.close()
        self._source = options.get("source", self._source)
        number = int(self.np_random.integers(_SEEDS)) if seed is None else seed
        session = self._pool.session(self._source, number, profile=self._profile)
        self._session = session.__enter__()
        self._checked("load", session.loaded)
        observation = self._checked("reset", session.reset()).observation
        info: dict[str, Any] = {}
        if options.get("hint"):
            info["hint"] = self._checked("hint", session.hint()).observation
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """One action.

        Raises:
            EnvironmentFault: the environment failed, or the episode had ended.
            gymnasium.error.ResetNeeded: no episode has begun.
            SandboxError: the jail failed.
            ValueError: the action is no text or longer than the jail takes.
        """
        if self._session is None:
            raise gymnasium.error.ResetNeeded("no episode has begun: call reset before step")
        reply = self._checked("step", self._session.step(action))
        assert reply.reward is not None  # a finished step has one
        return reply.observation, reply.reward, reply.terminated, reply.truncated, {}

    def close(self) -> None:
        """Give the worker back. Idempotent; a later `reset` takes another."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _checked(self, where: str, reply: Reply) -> Reply:
        self.last_reply = reply
        if not reply.ok:
            raise EnvironmentFault(where, reply)
        return reply
