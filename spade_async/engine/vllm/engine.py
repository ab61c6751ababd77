"""The vLLM engine: checks and counts requests, swaps weights, starts a dead vLLM anew.

```
 generate --> Places --> Core.follow --(AsyncLLM)--> vLLM's process, model inside
 load_weights: stage (thread) --> Core.push: pause, update, resume
 death of the process --> Core.start, newest weights pushed --> each request goes on where it was
```
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spade_async.config.held_model import LoraConfig
from spade_async.config.schema import EngineConfig
from spade_async.engine.offline import stay_offline
from spade_async.engine.protocol import Generation, GenerationCancelled, LoadReport, Sampling
from spade_async.engine.request_checks import check_ids, check_request
from spade_async.engine.vllm import left_names
from spade_async.engine.vllm.arguments import engine_arguments, environment, text_config
from spade_async.engine.vllm.core import AdapterRefused, Core, CoreDied, UpdateFailed
from spade_async.engine.vllm.installed import check_vllm
from spade_async.engine.vllm.places import Places
from spade_async.engine.vllm.sampling import check_sampling
from spade_async.engine.vllm.scores import prompt_scores
from spade_async.engine.vllm.staged import StagedWeights, stage
from spade_async.engine.vllm.staged_adapter import stage_adapter
from spade_async.engine.vllm.stream import Stream
from spade_async.errors import GenerationError, WeightsError
from spade_async.types import PolicyVersion
from spade_async.weights.header import folder_shapes

logger = logging.getLogger(__name__)

T = TypeVar("T")

START = PolicyVersion(0, 0)
"""Version of a model folder when nothing else is said."""


class VllmEngine:
    """`Engine` over vLLM. Make it with `create`; call everything from one event loop."""

    def __init__(
        self,
        folder: Path,
        config: EngineConfig,
        max_context_tokens: int,
        start: PolicyVersion,
        *,
        is_cpu: bool,
        lora: LoraConfig | None,
        arguments: dict[str, Any],
    ) -> None:
        self._config = config
        self._lora = lora
        self._max_context_tokens = max_context_tokens
        self._start = start
        self._arguments = arguments
        self._environment = environment(config, is_cpu=is_cpu)
        self._vocabulary_size = int(text_config(folder)["vocab_size"])
        self._shapes = folder_shapes(folder)
        self._recompute = config.on_swap == "recompute"
        self._core: Core | None = None
        self._staged: StagedWeights | None = None
        """The weights in use; None while they are those of the folder."""
        self.version = start
        """Version of the present weights."""
        self._places = Places(config.slots)
        self._num_held = 0
        """Requests that wait for their version."""
        self._loading = asyncio.Lock()
        """Held while weights come in, and while it sleeps."""
        self._awake = asyncio.Event()
        self._awake.set()
        self._changed = asyncio.Condition()
        self._restarting: asyncio.Task[None] | None = None
        self._closed = False
        self.failed: GenerationError | None = None
        """Why it is dead for good, or None."""
        self._deaths_in_a_row = 0
        self._counts = dict.fromkeys(
            ("requests", "tokens", "swaps", "recomputed_tokens", "engine_deaths",
             "resubmitted_requests", "resubmitted_tokens", "failed_updates"), 0
        )  # fmt: skip

    @classmethod
    async def create(
        cls,
        model_folder: Path,
        config: EngineConfig,
        max_context_tokens: int,
        *,
        version: PolicyVersion = START,
        lora: LoraConfig | None = None,
        returns_experts: bool = True,
        sleeps: bool = False,
    ) -> VllmEngine:
        """Start vLLM on a Hugging Face model folder.

        Args:
            model_folder: weights of `version`.
            config: slots, threads, what a swap does, and [engine.vllm].
            max_context_tokens: longest sequence, prompt and everything after it.
            version: version of the weights in the folder.
            lora: the adapter, when `load_weights` is given adapters alone; None: all weights.
            returns_experts: of a mixture on a GPU, with each generation (`Generation.experts`).
            sleeps: whether `sleep` will be asked for; a GPU's memory is then taken so that it can.

        Raises:
            ConfigError: vLLM cannot run here, or not this model; says what to do.
            GenerationError: it does not start.
        """
        is_cpu = check_vllm().is_cpu_build
        stay_offline()
        folder = Path(model_folder)
        arguments = engine_arguments(
            folder, config, max_context_tokens, is_cpu=is_cpu, lora=lora,
            returns_experts=returns_experts, sleeps=sleeps,
        )  # fmt: skip
        engine = cls(
            folder, config, max_context_tokens, version,
            is_cpu=is_cpu, lora=lora, arguments=arguments,
        )  # fmt: skip
        engine._core = await engine._new_core()
        return engine

    @property
    def dtype(self) -> str:
        """See `Engine.dtype`."""
        return str(self._arguments["dtype"])

    @property
    def pids(self) -> list[int]:
        """Processes that hold the model now."""
        return [] if self._core is None else self._core.pids

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Generation:
        """See `Engine.generate`."""
        self._check_alive()
        check_request(
            prompt_ids, sampling, max_context_tokens=self._max_context_tokens,
            vocabulary_size=self._vocabulary_size,
        )  # fmt: skip
        check_sampling(sampling)
        self._counts["requests"] += 1
        stream = Stream(list(prompt_ids), sampling)
        try:
            await self._hold(sampling.min_version)
            self._places.enter(stream)
            while not stream.is_done:
                await self._follow(stream)
        except asyncio.CancelledError:
            raise GenerationCancelled(stream.num_tokens) from None
        finally:
            self._places.leave(stream)
            self._counts["tokens"] += len(stream.tokens)
        self._deaths_in_a_row = 0
        return stream.generation()

    async def load_weights(self, version: PolicyVersion, location: str, digest: str) -> LoadReport:
        """See `Engine.load_weights`. Reading and checking happen while tokens are sampled."""
        began = time.monotonic()
        async with self._loading:
            self._check_alive()
            if version < self.version:
                raise WeightsError(
                    f"weights {version} are older than the loaded {self.version}: not loaded"
                )
            staged = await asyncio.to_thread(self._stage, version, location, digest)
            try:
                pause_s = await self._swap(staged)
            except BaseException:
                staged.close()
                raise
            before, self._staged = self._staged, staged
            if before is not None:
                before.close()
            self._counts["swaps"] += 1
            async with self._changed:
                self.version = version
                self._changed.notify_all()
        load_s = time.monotonic() - began
        logger.debug("weights %s in after %.3f s, paused %.3f s", version, load_s, pause_s)
        return LoadReport(version, digest, load_s, pause_s)

    async def score(self, token_ids: list[int], temperature: float) -> NDArray[np.float32]:
        """See `Engine.score`; temperature 0 means 1. Another one costs the whole vocabulary."""
        self._check_alive()
        check_ids(token_ids, self._vocabulary_size)
        if len(token_ids) >= int(self._arguments["max_model_len"]):
            raise GenerationError(
                f"{len(token_ids)} tokens are more than can be scored with "
                f"model.max_context_tokens={self._max_context_tokens} on this model"
            )
        if len(token_ids) == 1:
            return np.zeros(0, dtype=np.float32)
        is_plain = temperature in (0.0, 1.0)
        while True:
            core = await self._living()
            try:
                found = await core.score(token_ids, whole_vocabulary=not is_plain)
            except CoreDied:
                self._note_death(core)
            else:
                return prompt_scores(found, token_ids, None if is_plain else temperature)

    async def tensor_digests(self) -> dict[str, str]:
        """{}: vLLM fuses weights, and packs them on a CPU. See `Engine.tensor_digests`."""
        return {}

    def stats(self) -> dict[str, float]:
        """See `Engine.stats`; also engine_deaths, failed_updates and what was resubmitted."""
        counts = {name: float(count) for name, count in self._counts.items()}
        counts |= self._places.stats() | {"version": float(self.version.packed)}
        counts["waiting"] += self._num_held
        counts["tokens"] += sum(stream.num_tokens for stream in self._places.live)
        if self._core is not None:
            counts["failed_updates"] += self._core.failed_updates
        return counts

    async def sleep(self) -> None:
        """See `Engine.sleep`: vLLM's level 1, weights to the host, keys and values dropped."""
        await self._loading.acquire()
        core = await self._living()
        self._awake.clear()
        try:
            await core.sleep()
        except CoreDied:
            self._note_death(core)

    async def wake(self) -> None:
        """See `Engine.wake`; one that died asleep is started again now. Then swaps go on."""
        self._awake.set()
        core = await self._living()
        try:
            await core.wake()
        except CoreDied:
            self._note_death(core)
        finally:  # a swap has the core paused, and this would have undone it
            self._loading.release()

    async def close(self) -> None:
        """See `Engine.close`. Harmless when repeated."""
        self._awake.set()
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._restarting is not None:
            # Not cancelled: what it has begun to start must be ended, too.
            await asyncio.gather(self._restarting, return_exceptions=True)
        core, self._core = self._core, None
        if core is not None:
            await core.stop()
        left_names.end()
        if self._staged is not None:
            self._staged.close()
            self._staged = None

    # -- requests ------------------------------------------------------------------------------

    async def _follow(self, stream: Stream) -> None:
        """One life's share of a request."""
        core = await self._living()
        try:
            await core.follow(stream)
        except CoreDied:
            self._check_open()
            self._note_death(core)
            if not stream.is_done:
                self._counts["resubmitted_requests"] += 1
                self._counts["resubmitted_tokens"] += len(stream.tokens)

    async def _hold(self, min_version: int) -> None:
        if self.version.packed >= min_version:
            return
        self._num_held += 1
        try:
            await self._until(lambda: self.version.packed >= min_version)
        finally:
            self._num_held -= 1

    # -- weights -------------------------------------------------------------------------------

    def _stage(self, version: PolicyVersion, location: str, digest: str) -> StagedWeights:
        if self._lora is None:
            return stage(version, location, digest, self._shapes)
        return stage_adapter(version, location, digest, self._shapes, self._lora)

    async def _swap(self, staged: StagedWeights) -> float:
        """Seconds of the pause.

        Raises:
            WeightsError: every try failed; the engine was started anew on the weights before.
        """
        while True:
            core = await self._living()
            try:
                pause_s = await core.push(
                    staged, clear_cache=self._recompute, tries=self._config.vllm.update_tries
                )
            except CoreDied:
                self._note_death(core)
            except AdapterRefused as cause:
                raise WeightsError(
                    f"adapter {staged.version} does not go into vLLM ({cause}): {self.version} "
                    "stays in use"
                ) from cause
            except UpdateFailed as cause:
                self._note_death(core)
                raise WeightsError(
                    f"weights {staged.version} do not go into vLLM ({cause}): it was started anew "
                    f"on {self.version}"
                ) from cause
            else:
                if self._recompute:
                    self._counts["recomputed_tokens"] += sum(
                        len(s.prompt) + s.num_tokens for s in self._places.live if s.num_tokens
                    )
                return pause_s

    # -- lives ---------------------------------------------------------------------------------

    async def _new_core(self) -> Core:
        await self._awake.wait()
        self._check_open()
        return await Core.start(self._arguments, self._environment, self._start, self._note_death)

    def _note_death(self, core: Core) -> None:
        """A core is of no use any more: end it and start another one. Once per core."""
        if self._core is not core or self._closed:
            return
        self._core = None
        self._counts["engine_deaths"] += 1
        self._counts["failed_updates"] += core.failed_updates
        self._deaths_in_a_row += 1
        self._restarting = asyncio.create_task(self._restart(core))

    async def _restart(self, dead: Core) -> None:
        limit = self._config.vllm.max_restarts
        logger.warning("vLLM's processes are gone (%d of %d)", self._deaths_in_a_row, limit + 1)
        core: Core | None = None
        try:
            await dead.stop()
            if self._deaths_in_a_row > limit:
                raise GenerationError(
                    f"vLLM died {self._deaths_in_a_row} times without a finished request between "
                    "(engine.vllm.max_restarts): see its lines in the log"
                )
            core = await self._new_core()
            if self._staged is not None:
                await core.push(
                    self._staged,
                    clear_cache=self._recompute,
                    tries=self._config.vllm.update_tries,
                )
        except Exception as cause:
            logger.exception("vLLM is not started again")
            if core is not None:
                await core.stop()
            fault = cause if isinstance(cause, GenerationError) else None
            self.failed = fault or GenerationError(
                f"vLLM cannot be started again: {type(cause).__name__}: {cause}"
            )
        async with self._changed:
            if self.failed is None:
                self._core = core
                logger.warning("vLLM runs again, on weights %s", self.version)
            self._changed.notify_all()

    async def _living(self) -> Core:
        await self._until(lambda: self._core is not None)
        assert self._core is not None
        return self._core

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._closed or self.failed is not None or condition()
            )
        self._check_open()
        self._check_alive()

    def _check_open(self) -> None:
        if self._closed:
            raise GenerationError("the engine was closed while the request was in flight")

    def _check_alive(self) -> None:
        if self.failed is not None:
            raise GenerationError(str(self.failed)) from self.failed
        if self._closed:
            raise GenerationError("the engine is closed")
