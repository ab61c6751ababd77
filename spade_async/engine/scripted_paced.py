"""The engine of a scripted run: says what its script draws, and takes the time the tokens take.

A request waits for its version, then for one of the slots, then for its tokens. Tokens carry the
version that is loaded at the moment they would be sampled, so a swap under a running request gives
a trace of mixed versions. No torch. The engine of unit tests is `scripted.ScriptedEngine`.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spade_async.config.scripted import ScriptedConfig
from spade_async.engine import scripted_codec as codec
from spade_async.engine import scripted_domain as domain
from spade_async.engine.leases import Leases
from spade_async.engine.protocol import Generation, LoadReport, Sampling
from spade_async.engine.scripted_programs import NUM_NAMES, RIGHT, WRONG, Program
from spade_async.engine.scripted_weights import digests, load_weights, logprobs, weights_of
from spade_async.errors import GenerationError, WeightsError
from spade_async.types import PolicyVersion

_DESIGN = codec.PROMPT_IDS[domain.DESIGN]
_HINTED = codec.PROMPT_IDS[domain.HINTED]
_ASK_HINT = codec.PROMPT_IDS[domain.ASK_HINT]


@dataclass(frozen=True, slots=True)
class Said:
    """What the script draws for one request."""

    first: int
    """Id that says what it is."""
    num_tokens: int
    """The stop token included."""
    hangs: bool


class Script:
    """From a request to what is said: a pure function of the configuration and the seed."""

    def __init__(self, config: ScriptedConfig) -> None:
        self._config = config

    def say(self, prompt_ids: list[int], sampling: Sampling, step: int, age_s: float) -> Said:
        """Draw a reply.

        Args:
            prompt_ids: the first one says which role asks.
            sampling: its seed decides everything; its token limit cuts the length.
            step: of the version that is loaded.
            age_s: seconds since the engine was made.
        """
        config = self._config
        draw = random.Random(sampling.seed)
        is_design = prompt_ids[0] == _DESIGN
        mean = config.design_tokens if is_design else config.episode_tokens
        if not is_design and self._is_changed(step, age_s):
            mean *= config.change_factor
        # exp of a normal variate has mean exp(mu + sigma^2 / 2).
        drawn = mean * math.exp(draw.gauss(0.0, config.sigma) - config.sigma**2 / 2)
        # A reply has at least the id that carries it and the stop token.
        num_tokens = min(max(2, round(drawn)), sampling.max_new_tokens)
        hangs = draw.random() < config.hang_share
        if is_design:
            first = self._design(draw, step)
        elif prompt_ids[0] == _ASK_HINT:
            first = codec.HINT_ID
        else:
            hinted = prompt_ids[0] == _HINTED
            solves = config.solve_with_hint if hinted else config.solve_no_hint
            first = codec.ACTION_IDS[RIGHT if draw.random() < solves else WRONG]
        return Said(first, num_tokens, hangs)

    def _is_changed(self, step: int, age_s: float) -> bool:
        at_step, at_s = self._config.change_at_step, self._config.change_at_s
        return (at_step is not None and step >= at_step) or (at_s is not None and age_s >= at_s)

    def _design(self, draw: random.Random, step: int) -> int:
        config = self._config
        name, valid, which = draw.randrange(NUM_NAMES), draw.random(), draw.random()
        ends = config.validity_ends_at_step
        fault = ""
        if valid >= config.validity or (ends is not None and step >= ends):
            if which < 1 / 3:
                return codec.NO_PROGRAM_ID
            fault = "load" if which < 2 / 3 else "reset"
        elif which < config.stuck_share:
            fault = "stuck"
        elif which < config.stuck_share + config.long_share:
            fault = "long"
        return codec.PROGRAM_ID + Program(name, config.turns, fault).code


@dataclass(slots=True, eq=False)
class _Running:
    """One request that has a slot."""

    began_s: float
    swaps: list[tuple[float, int, NDArray[np.float32]]] = field(default_factory=list)
    """(moment, packed version, weights), the first from before it began."""
    is_pinned: bool = False
    """Its sample holds a lease: no swap goes under it."""


class PacedEngine:
    """Implements `Engine` for `engine.kind = "scripted"`."""

    def __init__(self, config: ScriptedConfig, *, slots: int, finish: bool = False) -> None:
        """No weights but those of version 0.0, which nobody published, until others are loaded."""
        self._config = config
        self._script = Script(config)
        self._slots = asyncio.Semaphore(slots)
        self._num_slots = slots
        self._changed = asyncio.Condition()
        self._closed = False
        self._running: set[_Running] = set()
        self.version = PolicyVersion(0, 0)
        self._weights = weights_of(self.version)["scripted"]
        self._before: tuple[int, NDArray[np.float32]] | None = None
        """(packed version, weights) before the newest, for the samples that began under it."""
        self.leases = Leases(lambda: self.version.packed, lambda: self._closed) if finish else None
        self._made_s = time.monotonic()
        self._counted_s = self._made_s
        self._busy_s = 0.0
        self._tokens = self._requests = self._waiting = self._swaps = 0

    @property
    def dtype(self) -> str:
        """See `Engine.dtype`."""
        return "float32"

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Generation:
        """See `Engine.generate`."""
        self._check_alive()
        self._requests += 1
        self._waiting += 1
        asked_s = time.monotonic()
        try:
            if self.version.packed < sampling.min_version:
                async with self._changed:
                    await self._changed.wait_for(
                        lambda: self._closed or self.version.packed >= sampling.min_version
                    )
                asked_s = time.monotonic()
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        running = _Running(time.monotonic())
        queue_s = running.began_s - asked_s
        running.swaps.append((running.began_s, *self._weights_for(sampling.version)))
        running.is_pinned = sampling.version is not None
        self._count()
        self._running.add(running)
        try:
            self._check_alive()
            age_s = running.began_s - self._made_s
            said = self._script.say(prompt_ids, sampling, self.version.step, age_s)
            if said.hangs:
                await asyncio.Event().wait()
            await asyncio.sleep(said.num_tokens * self._config.token_s)
        finally:
            self._count()
            self._running.discard(running)
            self._slots.release()
        self._check_alive()
        self._tokens += said.num_tokens
        return self._generation(said, running, queue_s)

    def _weights_for(self, packed: int | None) -> tuple[int, NDArray[np.float32]]:
        if packed is None or packed == self.version.packed:
            return self.version.packed, self._weights
        if self._before is None or self._before[0] != packed:
            raise GenerationError(f"weights {PolicyVersion.unpack(packed)} are not held here")
        return self._before

    def _generation(self, said: Said, running: _Running, queue_s: float) -> Generation:
        num = said.num_tokens
        ids = np.full(num, codec.WORD_ID, np.int32)
        ids[0] = said.first
        if num > 1:
            ids[-1] = codec.STOP_ID
        moments = running.began_s + self._config.token_s * np.arange(num)
        which = np.searchsorted([s[0] for s in running.swaps], moments, side="right") - 1
        which = np.maximum(which, 0)
        by_swap = np.stack([logprobs(weights, ids) for _, _, weights in running.swaps])
        return Generation(
            token_ids=ids,
            logprobs=by_swap[which, np.arange(num)],
            versions=np.asarray([s[1] for s in running.swaps], np.int64)[which],
            finish_reason="stop" if num > 1 else "length",
            queue_s=queue_s,
        )

    async def load_weights(self, version: PolicyVersion, location: str, digest: str) -> LoadReport:
        """See `Engine.load_weights`; the file is really read and checked."""
        self._check_alive()
        if version < self.version:
            raise WeightsError(f"version {version} is older than {self.version}, which is loaded")
        began_s = time.monotonic()
        if self.leases is not None and self._before is not None and version != self.version:
            await self.leases.free(self._before[0])
        weights = await asyncio.to_thread(load_weights, location, digest)
        now_s = time.monotonic()
        async with self._changed:
            if version != self.version:
                self._before = (self.version.packed, self._weights)
            self.version, self._weights = version, weights
            for running in self._running:
                if not running.is_pinned:
                    running.swaps.append((now_s, version.packed, weights))
            self._swaps += 1
            self._changed.notify_all()
        if self.leases is not None:
            await self.leases.changed()
        return LoadReport(version, digest, load_s=now_s - began_s, pause_s=time.monotonic() - now_s)

    async def tensor_digests(self) -> dict[str, str]:
        """See `Engine.tensor_digests`: of the few numbers it speaks from."""
        return digests(self._weights)

    async def score(self, token_ids: list[int], temperature: float) -> NDArray[np.float32]:
        """See `Engine.score`; the temperature changes nothing."""
        del temperature
        self._check_alive()
        return logprobs(self._weights, token_ids[1:])

    async def sleep(self) -> None:
        """See `Engine.sleep`; it is on no device, and its time goes on."""

    async def wake(self) -> None:
        """See `Engine.wake`."""

    def stats(self) -> dict[str, float]:
        """See `Engine.stats`. busy_s is the share of slots in use, integrated over time."""
        self._count()
        return {
            "tokens": float(self._tokens),
            "requests": float(self._requests),
            "busy_s": self._busy_s,
            "idle_s": self._counted_s - self._made_s - self._busy_s,
            "active": float(len(self._running)),
            "waiting": float(self._waiting),
            "version": float(self.version.packed),
            "swaps": float(self._swaps),
            "recomputed_tokens": 0.0,
        }

    async def close(self) -> None:
        """Requests in flight fail once their time is over."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self.leases is not None:
            await self.leases.changed()

    def _count(self) -> None:
        """Call before the number of running requests changes."""
        now_s = time.monotonic()
        self._busy_s += (now_s - self._counted_s) * len(self._running) / self._num_slots
        self._counted_s = now_s

    def _check_alive(self) -> None:
        limit = self._config.engine_dies_after
        if limit is not None and self._requests > limit:
            raise GenerationError(f"scripted.engine_dies_after={limit}: the engine is dead")
        if self._closed:
            raise GenerationError("the engine is closed")
