"""An engine for tests that says what it is told to. No torch, no model, deterministic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from spade_async.engine.leases import Leases
from spade_async.engine.protocol import Generation, LoadReport, Sampling
from spade_async.errors import GenerationError, WeightsError
from spade_async.types import PolicyVersion

Script = Callable[[list[int], Sampling], Sequence[int]]
"""Prompt ids and sampling -> the tokens to say, stop token included when there is one."""


class ScriptedEngine:
    """Says scripted tokens after a delay, under the version that was loaded last.

    Args:
        script: a list of replies said in turn (and again from the first), or a function.
        delay_s: how long each request takes.
        logprob: log-probability reported for every token.
        check: called with (location, digest) at each load; raises WeightsError to refuse it.
        finish: samples end under the version they began with (`leases.py`).
    """

    def __init__(
        self,
        script: Script | Sequence[Sequence[int]],
        *,
        delay_s: float = 0.0,
        logprob: float = -0.5,
        version: PolicyVersion | None = None,
        check: Callable[[str, str], None] | None = None,
        finish: bool = False,
    ) -> None:
        self._script = script
        self._delay_s = delay_s
        self._logprob = logprob
        self._check = check
        self._changed = asyncio.Condition()
        self._closed = False
        self._said = 0
        self.version = version or PolicyVersion(0, 0)
        self.leases = Leases(lambda: self.version.packed, lambda: self._closed) if finish else None
        self._before: PolicyVersion | None = None
        self.failed: BaseException | None = None
        """Set it to make every later call fail, as if the engine had died."""
        self.prompts: list[list[int]] = []
        """Every prompt seen, in order of arrival."""
        self.loads: list[LoadReport] = []
        self._tokens = 0
        self._active = 0
        self._waiting = 0

    @property
    def dtype(self) -> str:
        """See `Engine.dtype`."""
        return "float32"

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Generation:
        """Say the next scripted reply, cut at `max_new_tokens`."""
        self._check_alive()
        self.prompts.append(list(prompt_ids))
        said, self._said = self._said, self._said + 1
        self._waiting += 1
        try:
            async with self._changed:
                await self._changed.wait_for(
                    lambda: self._closed or self.version.packed >= sampling.min_version
                )
        finally:
            self._waiting -= 1
        self._active += 1
        try:
            await asyncio.sleep(self._delay_s)
        finally:
            self._active -= 1
        self._check_alive()
        script = self._script
        reply = script(prompt_ids, sampling) if callable(script) else script[said % len(script)]
        ids = list(reply)[: sampling.max_new_tokens]
        stopped = bool(ids) and ids[-1] in sampling.stop_token_ids
        self._tokens += len(ids)
        version = self.version.packed if sampling.version is None else sampling.version
        return Generation(
            token_ids=np.asarray(ids, dtype=np.int32),
            logprobs=np.full(len(ids), self._logprob, dtype=np.float32),
            versions=np.full(len(ids), version, dtype=np.int64),
            finish_reason="stop" if stopped else "length",
        )

    async def load_weights(self, version: PolicyVersion, location: str, digest: str) -> LoadReport:
        """Take the version; nothing is read unless `check` does."""
        self._check_alive()
        if version < self.version:
            raise WeightsError(f"version {version} is older than {self.version}, which is loaded")
        if self._check is not None:
            self._check(location, digest)
        if self.leases is not None and self._before is not None and version != self.version:
            await self.leases.free(self._before.packed)
        report = LoadReport(version, digest, load_s=0.0, pause_s=0.0)
        async with self._changed:
            self._before = self.version if version != self.version else self._before
            self.version = version
            self.loads.append(report)
            self._changed.notify_all()
        if self.leases is not None:
            await self.leases.changed()
        return report

    async def score(self, token_ids: list[int], temperature: float) -> NDArray[np.float32]:
        """`logprob` for each token but the first."""
        self._check_alive()
        return np.full(max(0, len(token_ids) - 1), self._logprob, dtype=np.float32)

    async def tensor_digests(self) -> dict[str, str]:
        """None: there is no model."""
        return {}

    async def sleep(self) -> None:
        """See `Engine.sleep`; it is on no device, and its time goes on."""

    async def wake(self) -> None:
        """See `Engine.wake`."""

    def stats(self) -> dict[str, float]:
        """Counters as in `Engine.stats`."""
        return {
            "tokens": float(self._tokens),
            "requests": float(self._said),
            "busy_s": 0.0,
            "idle_s": 0.0,
            "active": float(self._active),
            "waiting": float(self._waiting),
            "version": float(self.version.packed),
            "swaps": float(len(self.loads)),
            "recomputed_tokens": 0.0,
        }

    async def close(self) -> None:
        """Requests in flight fail."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self.leases is not None:
            await self.leases.changed()

    def _check_alive(self) -> None:
        if self.failed is not None:
            raise GenerationError(f"the engine died: {self.failed}") from self.failed
        if self._closed:
            raise GenerationError("the engine is closed")
