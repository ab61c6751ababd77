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
from spade_async.engine.builtin.request import Request
from spade_async.engine.protocol import Generation, GenerationCancelled, LoadReport, Sampling
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

    def __init__(self, model: Model, config: EngineConfig, max_context_tokens: int, version: int):
        self._decoder = Decoder(
            model,
            slots=config.slots,
            prefill_tokens=config.prefill_tokens,
            max_context_tokens=max_context_tokens,
            version=version,
            recompute=config.on_swap == "recompute",
        )
        self._model = model
        self._max_context_tokens = max_context_tokens
        self._threads = config.threads
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        """None wakes the thread: to look at `_closed` and at cancelled requests."""
        self._open: dict[_Job, asyncio.Future[Any]] = {}
        self._loading = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self.failed: BaseException | None = None
        """What killed the engine thread, or None."""
        self._num_requests = 0
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
    ) -> BuiltinEngine:
        """Load a Hugging Face model folder and start.

        Args:
            model_folder: weights of `version`.
            config: slots, prefill size, threads, what a swap does.
            max_context_tokens: longest sequence, prompt and everything after it.
            version: version of the weights in the folder.
            general: keep off the fast path that some architectures have.

        Raises:
            ConfigError: the folder is missing, damaged or of an unsupported architecture.
        """
        model = await asyncio.to_thread(
            open_model, Path(model_folder), max_context_tokens, general=general
        )
        return cls(model, config, max_context_tokens, version.packed)

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
        wanted = len(prompt_ids) + sampling.max_new_tokens
        if sampling.max_new_tokens < 1 or sampling.temperature < 0:
            raise GenerationError(
                f"max_new_tokens={sampling.max_new_tokens} must be at least 1 and temperature="
                f"{sampling.temperature} at least 0"
            )
        if wanted > self._max_context_tokens:
            raise GenerationError(
                f"a prompt of {len(prompt_ids)} tokens and max_new_tokens="
                f"{sampling.max_new_tokens} do not fit model.max_context_tokens="
                f"{self._max_context_tokens}: shorten the prompt, lower max_new_tokens or "
                "raise the context"
            )
        self._check_ids(prompt_ids)
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
            weights = await asyncio.to_thread(self._read_weights, location, digest)

            def swap() -> float:
                paused = time.monotonic()
                self._decoder.swap(weights, version.packed)
                return time.monotonic() - paused

            pause_s: float = await self._submit(_Call(swap))
        load_s = time.monotonic() - start
        logger.debug("weights %s in after %.3f s, paused %.4f s", version, load_s, pause_s)
        return LoadReport(version, digest, load_s, pause_s)

    async def score(self, token_ids: list[int], temperature: float) -> NDArray[np.float32]:
        """See `Engine.score`; temperature 0 means 1, as in `Sampling`."""
        self._check_alive()
        self._check_ids(token_ids)
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

    def stats(self) -> dict[str, float]:
        """See `Engine.stats`; also swaps, recomputed_tokens and the memory of the KV cache."""
        decoder = self._decoder
        return {
            "tokens": float(decoder.num_tokens),
            "requests": float(self._num_requests),
            "decode_steps": float(decoder.num_steps),
            "busy_s": self._busy_s,
            "idle_s": self._idle_s,
            "active": float(len(decoder.running)),
            "waiting": float(len(decoder.ready) + len(decoder.held)),
            "version": float(decoder.version),
            "swaps": float(decoder.num_swaps),
            "recomputed_tokens": float(decoder.num_recomputed_tokens),
            "cache_bytes": float(decoder.cache.num_bytes),
        }

    async def close(self) -> None:
        """See `Engine.close`. Harmless when repeated."""
        self._closed = True
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        self._fail_open(GenerationError("the engine was closed while the request was in flight"))

    def _check_alive(self) -> None:
        if self.failed is not None:
            raise GenerationError(
                f"the engine thread died: {type(self.failed).__name__}: {self.failed}"
            ) from self.failed
        if self._closed:
            raise GenerationError("the engine is closed")

    def _check_ids(self, ids: list[int]) -> None:
        if not ids:
            raise GenerationError("a sequence of no tokens cannot be continued or scored")
        if min(ids) < 0 or max(ids) >= self._model.vocabulary_size:
            raise GenerationError(
                f"token ids {min(ids)}..{max(ids)} are outside the model's vocabulary of "
                f"{self._model.vocabulary_size}: tokenizer and model do not belong together"
            )

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
        job = None if self._decoder.has_work else self._jobs.get()
        taken = time.monotonic()
        self._idle_s += taken - start
        while True:
            if isinstance(job, Request):
                self._decoder.submit(job)
            elif isinstance(job, _Call):
                outcomes.append((job, self._answer(job)))
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
        self._decoder.drop_cancelled()
        if self._decoder.has_work:
            for request in self._decoder.step():
                fault = request.fault
                outcomes.append(
                    (request, GenerationError(fault) if fault else request.generation())
                )
        self._busy_s += time.monotonic() - taken
        if outcomes:
            self._post(self._deliver, outcomes)

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
