"""The built-in engine: asyncio in front, one thread that does all model work behind.

```
 generate / score / load_weights  --SimpleQueue-->  engine thread: Decoder.step, swap, score
 futures  <--call_soon_threadsafe, once per step--  what ended in the step
```
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spade_async.config.schema import EngineConfig
from spade_async.engine.builtin.decoder import Decoder
from spade_async.engine.builtin.model import Model, open_model
from spade_async.engine.builtin.nap import Nap
from spade_async.engine.builtin.request import Request
from spade_async.engine.leases import Leases
from spade_async.engine.protocol import Generation, GenerationCancelled, LoadReport, Sampling
from spade_async.engine.request_checks import check_ids, check_request
from spade_async.errors import GenerationError, SpadeError, WeightsError, boundary
from spade_async.types import PolicyVersion
from spade_async.weights.digest import tensor_digests
from spade_async.weights.store import load_weights

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Call:
    """Work for the engine thread between two steps."""

    work: Callable[[], Any]


START = PolicyVersion(0, 0)
"""Version of a model folder when nothing else is said."""

_Job = Request | _Call
_Outcome = tuple[_Job, Any]
"""A job and its result, or the SpadeError it ended with."""


class BuiltinEngine:
    """`Engine` for small models on a CPU. Make it with `create`; its loop is the caller's."""

    def __init__(
        self,
        models: list[Model],
        config: EngineConfig,
        max_context_tokens: int,
        version: int,
    ) -> None:
        """One model: weights are swapped under running requests. Two: these finish on theirs."""
        self._decoders = [
            Decoder(
                model,
                slots=config.slots,
                prefill_tokens=config.prefill_tokens,
                max_context_tokens=max_context_tokens,
                version=version,
                recompute=config.on_swap == "recompute",
            )
            for model in models
        ]
        self._newest = 0
        """Index of the decoder with the newest weights."""
        self._slots = config.slots
        self.leases = (
            Leases(lambda: self._decoder.version, lambda: self._closed or self.failed is not None)
            if len(models) > 1
            else None
        )
        self._max_context_tokens = max_context_tokens
        self._threads = config.threads
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        """None wakes the thread: to look at `_closed` and at cancelled requests."""
        self._open: dict[_Job, asyncio.Future[Any]] = {}
        self._loading = asyncio.Lock()
        """Held while weights come in, and while it sleeps."""
        self._nap: tuple[Nap, asyncio.Future[Any]] | None = None
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self.failed: BaseException | None = None
        """What killed the engine thread, or None."""
        self._num_requests = 0
        self._num_steps = 0
        self._waking: asyncio.Task[None] | None = None
        self._busy_s = 0.0
        self._idle_s = 0.0
        # Daemon: a stuck pass must not keep the process from leaving.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @classmethod
    async def create(
        cls,
        model_folder: Path,
        config: EngineConfig,
        max_context_tokens: int,
        *,
        version: PolicyVersion = START,
        general: bool = False,
        finish: bool = False,
        returns_experts: bool = True,
    ) -> BuiltinEngine:
        """Load a Hugging Face model folder and start.

        Args:
            model_folder: weights of `version`.
            config: slots, prefill size, threads, what a swap does.
            max_context_tokens: longest sequence, prompt and everything after it.
            version: version of the weights in the folder.
            general: keep off the fast path that some architectures have.
            finish: keep two weight sets, so that samples end under the one they began with; twice
                the memory of weights and cache.
            returns_experts: of a mixture, with each generation (`Generation.experts`).

        Raises:
            ConfigError: the folder is missing, damaged or of an unsupported architecture.
        """
        models = [
            await asyncio.to_thread(
                open_model,
                Path(model_folder),
                max_context_tokens,
                general=general,
                notes_experts=returns_experts,
            )
            for _ in range(1 + finish)
        ]
        return cls(models, config, max_context_tokens, version.packed)

    @property
    def _decoder(self) -> Decoder:
        """The one with the newest weights."""
        return self._decoders[self._newest]

    @property
    def _model(self) -> Model:
        return self._decoder.model

    @property
    def version(self) -> PolicyVersion:
        """Version of the present weights."""
        return PolicyVersion.unpack(self._decoder.version)

    @property
    def dtype(self) -> str:
        """See `Engine.dtype`."""
        return "float32"

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Generation:
        """See `Engine.generate`."""
        self._check_alive()
        check_request(
            prompt_ids,
            sampling,
            max_context_tokens=self._max_context_tokens,
            vocabulary_size=self._model.vocabulary_size,
        )
        version = sampling.version
        if version is not None and all(d.version != version for d in self._decoders):
            raise GenerationError(f"weights {PolicyVersion.unpack(version)} are not held here")
        self._num_requests += 1
        request = Request(list(prompt_ids), sampling)
        try:
            result: Generation = await self._submit(request)
        except asyncio.CancelledError:
            request.cancelled = True
            self._open.pop(request, None)
            self._jobs.put(None)
            raise GenerationCancelled(len(request.tokens)) from None
        return result

    async def load_weights(self, version: PolicyVersion, location: str, digest: str) -> LoadReport:
        """See `Engine.load_weights`. Reading and checking happen while tokens are decoded."""
        start = time.monotonic()
        async with self._loading:
            self._check_alive()
            if version < self.version:
                raise WeightsError(
                    f"weights {version} are older than the loaded {self.version}: not loaded"
                )
            index = self._newest
            if self.leases is not None and version != self.version:
                # Into the older set, once the last sample that began under it has ended.
                index = 1 - index
                if self._decoders[index].version != self._decoder.version:
                    await self.leases.free(self._decoders[index].version)
            weights = await asyncio.to_thread(self._read_weights, location, digest)

            def swap() -> float:
                paused = time.monotonic()
                self._decoders[index].swap(weights, version.packed)
                self._newest = index
                for decoder in self._decoders:
                    held, decoder.held = decoder.held, []
                    for request in held:
                        self._decoder_for(request).submit(request)
                return time.monotonic() - paused

            pause_s: float = await self._submit(_Call(swap))
            if self.leases is not None:
                await self.leases.changed()
        load_s = time.monotonic() - start
        logger.debug("weights %s in after %.3f s, paused %.4f s", version, load_s, pause_s)
        return LoadReport(version, digest, load_s, pause_s)

    async def score(self, token_ids: list[int], temperature: float) -> NDArray[np.float32]:
        """See `Engine.score`; temperature 0 means 1, as in `Sampling`."""
        self._check_alive()
        check_ids(token_ids, self._model.vocabulary_size)
        if len(token_ids) > self._max_context_tokens:
            raise GenerationError(
                f"{len(token_ids)} tokens are more than model.max_context_tokens="
                f"{self._max_context_tokens}"
            )
        if len(token_ids) == 1:
            return np.zeros(0, dtype=np.float32)

        def work() -> NDArray[np.float32]:
            ids = torch.tensor(token_ids)
            logits = self._model.score(ids)[:-1] / (temperature or 1.0)
            chosen = torch.log_softmax(logits, dim=-1).gather(1, ids[1:].unsqueeze(1))
            found: NDArray[np.float32] = chosen.squeeze(1).numpy()
            return found

        scored: NDArray[np.float32] = await self._submit(_Call(work))
        return scored

    async def tensor_digests(self) -> dict[str, str]:
        """See `Engine.tensor_digests`. Tokens are decoded meanwhile; no swap can come between."""
        async with self._loading:
            self._check_alive()
            return await asyncio.to_thread(tensor_digests, self._model.parameters.by_name())

    async def sleep(self) -> None:
        """See `Engine.sleep`; its weights are in the host's memory and stay there."""
        await self._loading.acquire()
        self._check_alive()
        nap = Nap()
        self._nap = nap, asyncio.ensure_future(self._submit(_Call(nap)))
        await asyncio.wait([nap.begun, self._nap[1]], return_when=asyncio.FIRST_COMPLETED)

    async def wake(self) -> None:
        """See `Engine.wake`."""
        assert self._nap is not None, "it does not sleep"
        nap, ended = self._nap
        self._nap = None
        nap.end()
        self._loading.release()
        await ended

    def stats(self) -> dict[str, float]:
        """See `Engine.stats`; also swaps, recomputed_tokens and the memory of the KV cache."""
        decoders = self._decoders
        return {
            "tokens": float(sum(d.num_tokens for d in decoders)),
            "requests": float(self._num_requests),
            "decode_steps": float(self._num_steps),
            "busy_s": self._busy_s,
            "idle_s": self._idle_s,
            "active": float(sum(len(d.running) for d in decoders)),
            "waiting": float(sum(len(d.ready) + len(d.held) for d in decoders)),
            "version": float(self._decoder.version),
            "swaps": float(sum(d.num_swaps for d in decoders)),
            "recomputed_tokens": float(sum(d.num_recomputed_tokens for d in decoders)),
            "cache_bytes": float(sum(d.cache.num_bytes for d in decoders)),
        }

    async def close(self) -> None:
        """See `Engine.close`. Harmless when repeated."""
        self._closed = True
        if self._nap is not None:
            self._nap[0].end()
        self._jobs.put(None)
        if self.leases is not None:
            await self.leases.changed()
        await asyncio.to_thread(self._thread.join)
        self._fail_open(GenerationError("the engine was closed while the request was in flight"))

    def _check_alive(self) -> None:
        if self.failed is not None:
            raise GenerationError(
                f"the engine thread died: {type(self.failed).__name__}: {self.failed}"
            ) from self.failed
        if self._closed:
            raise GenerationError("the engine is closed")

    def _read_weights(self, location: str, digest: str) -> dict[str, torch.Tensor]:
        tensors = load_weights(location, digest)
        with boundary(WeightsError, f"weights at {location}"), torch.inference_mode():
            return self._model.parameters.check(tensors)

    async def _submit(self, job: _Job) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._open[job] = future
        self._jobs.put(job)
        return await future

    # -- the engine thread ---------------------------------------------------------------------

    def _run(self) -> None:
        try:
            torch.set_num_threads(self._threads)
            with torch.inference_mode():
                while not self._closed:
                    self._iterate()
        except BaseException as cause:
            self.failed = cause
            logger.exception("the engine thread died")
            error = GenerationError(f"the engine thread died: {type(cause).__name__}: {cause}")
            error.__cause__ = cause
            self._post(self._fail_open, error)

    def _iterate(self) -> None:
        """Take what is queued, then one decode step."""
        start = time.monotonic()
        outcomes: list[_Outcome] = []
        job = None if any(d.has_work for d in self._decoders) else self._jobs.get()
        taken = time.monotonic()
        self._idle_s += taken - start
        while True:
            if isinstance(job, Request):
                self._decoder_for(job).submit(job)
            elif isinstance(job, _Call):
                outcomes.append((job, self._answer(job)))
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
        for decoder in self._decoders:
            decoder.drop_cancelled()
        self._num_steps += any(d.has_work for d in self._decoders)
        for decoder in self._decoders:
            if not decoder.has_work:
                continue
            # All of them share the slots.
            others = sum(len(d.running) for d in self._decoders if d is not decoder)
            decoder.slots = self._slots - others
            for request in decoder.step():
                fault = request.fault
                outcomes.append(
                    (request, GenerationError(fault) if fault else request.generation())
                )
        self._busy_s += time.monotonic() - taken
        if outcomes:
            self._post(self._deliver, outcomes)

    def _decoder_for(self, request: Request) -> Decoder:
        wanted = request.sampling.version
        held = (d for d in (self._decoder, *self._decoders) if d.version == wanted)
        return next(held, self._decoder)

    def _answer(self, call: _Call) -> Any:
        """A call's result; only our typed errors are its own, any other ends the thread."""
        try:
            return call.work()
        except SpadeError as error:
            return error

    def _post(self, function: Callable[..., None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:
            logger.debug("the event loop is closed: a result was dropped")

    # -- back on the event loop ------------------------------------------------------------------

    def _deliver(self, outcomes: list[_Outcome]) -> None:
        for job, result in outcomes:
            future = self._open.pop(job, None)
            if future is None or future.done():
                continue
            if isinstance(result, SpadeError):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _fail_open(self, error: GenerationError) -> None:
        for future in self._open.values():
            if not future.done():
                future.set_exception(error)
        self._open.clear()
        if self.leases is not None:
            self._waking = self._loop.create_task(self.leases.changed())
