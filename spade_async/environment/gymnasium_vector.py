"""Many jailed environments as one `gymnasium.vector.VectorEnv`; needs the extra `gymnasium`.

All are stepped by one call into the jail, so they run side by side on as many cores as there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The adapter first: it says what to install.
from spade_async.environment.gymnasium_adapter import EnvironmentFault, JailText
from spade_async.errors import SandboxError
from spade_async.sandbox import SyncPool, SyncSession
from spade_async.types import Outcome, Reply

from gymnasium.error import ResetNeeded  # isort: skip
from gymnasium.vector import AutoresetMode, VectorEnv  # isort: skip
from gymnasium.vector.utils import batch_space  # isort: skip

__all__ = ["JailedVectorEnv"]

Batch = tuple[tuple[str, ...], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]


class JailedVectorEnv(VectorEnv[tuple[str, ...], Sequence[str], NDArray[Any]]):
    """One environment per source. The pool stays the caller's.

    An environment that ended is reset by the next `step`, whose action for it is not used
    (`AutoresetMode.NEXT_STEP`). One that failed ends alone: its observation is "", its reward NaN,
    it is truncated, and ``info["outcome"]`` and ``info["detail"]`` tell why, at its place; it too
    begins anew with the next `step`.
    """

    def __init__(
        self, pool: SyncPool, sources: Sequence[str], *, profile: str | None = None
    ) -> None:
        """Nothing is run before the first `reset`.

        Args:
            pool: an open pool with as many workers as there are sources.
            sources: one per environment; the same one may come many times.
            profile: one of the pool's profiles; None is its first.

        Raises:
            ValueError: no sources, or more than the pool has workers.
        """
        if not 0 < len(sources) <= pool.policy.num_workers:
            raise ValueError(
                f"{len(sources)} sources for {pool.policy.num_workers} workers: give at least one "
                "source, and raise num_workers of the pool's policy to their number"
            )
        self.num_envs = len(sources)
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = JailText(pool.policy.reply_bytes)
        self.single_action_space = JailText(pool.policy.action_bytes)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._pool, self._sources, self._profile = pool, tuple(sources), profile
        self._sessions: list[SyncSession | None] = [None] * self.num_envs
        self._ended = [True] * self.num_envs

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Begin an episode in each environment.

        Args:
            seed: one per environment; or an integer, from which environment i gets ``seed + i``;
                or None: they are drawn, as are those of all later episodes.
            options: none are known.

        Raises:
            EnvironmentFault: one could not begin. Its number is in the message.
            SandboxError: the jail failed.
            ValueError: options, or seeds of another number.
        """
        if options:
            raise ValueError(f"options {sorted(options)}: a vector of environments knows none")
        if seed is None or isinstance(seed, int):
            super().reset(seed=seed)
            seeds = [None if seed is None else seed + at for at in range(self.num_envs)]
        else:
            seeds = list(seed)
            if len(seeds) != self.num_envs:
                raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
            super().reset(seed=seeds[0])
        texts = []
        for at in range(self.num_envs):
            reply = self._begin(at, seeds[at])
            if not reply.ok:
                raise EnvironmentFault(f"environment {at}", reply)
            texts.append(reply.observation)
        return tuple(texts), {}

    def step(self, actions: Sequence[str]) -> Batch:
        """One action each, all at once.

        Raises:
            gymnasium.error.ResetNeeded: nothing has begun.
            SandboxError: the jail failed; the next step begins all episodes anew.
            ValueError: another number of actions, or one that cannot be sent: none was.
        """
        if len(actions) != self.num_envs:
            raise ValueError(f"{len(actions)} actions for {self.num_envs} environments")
        if self._sessions.count(None) == self.num_envs:
            raise ResetNeeded("no episode has begun: call reset before step")
        going = [
            (at, session)
            for at, session in enumerate(self._sessions)
            if session is not None and not self._ended[at]
        ]
        stepped = self._pool.step_many([(session, actions[at]) for at, session in going])
        self._ended = [True] * self.num_envs  # until each is known to go on
        replies: dict[int, Reply] = {}
        for (at, _), reply in zip(going, stepped, strict=True):
            if isinstance(reply, SandboxError):
                raise reply
            replies[at] = reply
        begun = [at for at in range(self.num_envs) if at not in replies]
        replies |= {at: self._begin(at, None) for at in begun}
        texts, rewards, infos = [], np.zeros(self.num_envs), dict[str, Any]()
        ends, cuts = np.zeros(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)
        for at in range(self.num_envs):
            reply = replies[at]
            texts.append(reply.observation)
            ends[at], cuts[at] = reply.terminated, reply.truncated or not reply.ok
            if reply.outcome is not Outcome.FINISHED:
                rewards[at] = np.nan
                fault = {"outcome": reply.outcome.value, "detail": reply.detail}
                infos = self._add_info(infos, fault, at)
            elif reply.reward is not None:
                rewards[at] = reply.reward
            self._ended[at] = bool(ends[at] or cuts[at])
        return tuple(texts), rewards, ends, cuts, infos

    def close_extras(self, **named: Any) -> None:
        """Give all workers back."""
        with ExitStack() as stack:
            for session in self._sessions:
                if session is not None:
                    stack.callback(session.close)
        self._sessions = [None] * self.num_envs

    def _begin(self, at: int, seed: int | None) -> Reply:
        """A fresh worker for one environment: the reply of its reset, or of what failed before."""
        old, self._sessions[at] = self._sessions[at], None
        if old is not None:
            old.close()
        self._ended[at] = True
        number = int(self.np_random.integers(2**63 - 1)) if seed is None else seed
        session = self._pool.session(self._sources[at], number, profile=self._profile)
        self._sessions[at] = session.__enter__()
        reply = session.reset() if session.loaded.ok else session.loaded
        self._ended[at] = not reply.ok
        return reply
