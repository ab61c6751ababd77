"""One life of vLLM's processes: start, requests, weight updates, death.

Our process holds vLLM's front (`AsyncLLM`); the model lives in its child. The child's death is seen
by its pidfd, whatever is being waited for. A dead core stays dead: `engine.py` makes another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from spade_async.engine.vllm import left_names
from spade_async.engine.vllm.adapters import Adapters
from spade_async.engine.vllm.ipc_handle import device_copies
from spade_async.engine.vllm.plugin import IPC_TRANSFER
from spade_async.engine.vllm.sampling import ORDINARY, URGENT, sampling_params, scoring_params
from spade_async.engine.vllm.staged import StagedWeights
from spade_async.engine.vllm.stream import Stream, flat_logprobs, token_versions
from spade_async.errors import GenerationError
from spade_async.types import PolicyVersion

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BURIAL_S = 5.0
"""Longest that a killed process takes to be gone."""


class CoreDied(Exception):
    """The processes of this life are gone; what was asked of them is not done."""


class UpdateFailed(Exception):
    """Every try of a weight update failed: the model holds no usable weights."""


class AdapterRefused(Exception):
    """Every try to load an adapter failed; the one before is in use as ever."""


class Core:
    """One `AsyncLLM`. Call everything from one event loop."""

    def __init__(self, llm: Any, on_death: Callable[[Core], None], *, uses_ipc: bool) -> None:
        self._llm = llm
        self._uses_ipc = uses_ipc
        self._on_death = on_death
        self._stopped = False
        self._streams: set[Stream] = set()
        """Requests under way."""
        self.adapters = Adapters(llm)
        self.failed_updates = 0
        """Tries of a weight update that failed."""
        self.died = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._processes = list(llm.engine_core.resources.engine_manager.processes)
        self._pidfds = [os.pidfd_open(pid) for pid in self.pids]
        for fd in self._pidfds:
            self._loop.add_reader(fd, self._see_death)

    @classmethod
    async def start(
        cls,
        arguments: dict[str, Any],
        environment: dict[str, str],
        version: PolicyVersion,
        on_death: Callable[[Core], None],
    ) -> Core:
        """Start the processes and load the model folder. Takes 10 to 60 s, mostly imports.

        Args:
            arguments: of `AsyncEngineArgs`.
            environment: of the processes; it stays set in ours.
            version: of the weights in the folder.
            on_death: called once, when the processes die without `stop`.

        Raises:
            GenerationError: it does not start; vLLM's own lines are in the log.
        """
        os.environ.update(environment)
        left_names.begin()
        try:
            llm = await asyncio.to_thread(_make, arguments)
        except Exception as cause:
            raise GenerationError(
                f"vLLM does not start ({type(cause).__name__}: {cause}): its own lines in the log "
                "say why"
            ) from cause
        # None: only adapters go in.
        transfer = arguments.get("weight_transfer_config")
        core = cls(llm, on_death, uses_ipc=transfer == {"backend": IPC_TRANSFER})
        await core._ask(core._connect(version, has_transfer=transfer is not None))
        return core

    @property
    def pids(self) -> list[int]:
        """Processes that hold the model."""
        return [process.pid for process in self._processes]

    @property
    def _is_dead(self) -> bool:
        return self.died.is_set() or self._llm is None or self._llm.errored

    async def follow(self, stream: Stream) -> None:
        """Have a request said to its end, or until it is moved; what was said is in the stream.

        Raises:
            CoreDied: what was said until then is kept.
        """
        stream.is_moved = False
        self._streams.add(stream)
        try:
            with self.adapters.use() as adapter:
                stream.adapter = adapter
                await self._follow(stream, None if adapter is None else adapter.request())
        finally:
            self._streams.discard(stream)
            stream.request_id = stream.adapter = None

    async def _follow(self, stream: Stream, adapter: Any) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        if self.died.is_set():
            raise CoreDied
        queue = None
        try:
            queue = await self._llm.add_request(
                f"{uuid.uuid4().hex}-{stream.lives}",
                {"prompt_token_ids": stream.prompt + stream.tokens},
                sampling_params(stream),
                # One that is sent again goes before those that came after it.
                arrival_time=stream.created_s,
                lora_request=adapter,
                priority=URGENT if stream.sampling.urgent else ORDINARY,
            )
            # Gone already when it has ended meanwhile: then the output has everything.
            stream.state = self._llm.output_processor.request_states.get(queue.request_id)
            stream.request_id = queue.request_id
            if stream.is_moved:
                await self._llm.abort(queue.request_id, internal=True)
            said = queue.get_nowait() or await self._ask(queue.get())
        except asyncio.CancelledError:
            stream.keep()
            if queue is not None and not self.died.is_set():
                with contextlib.suppress(EngineDeadError):
                    await self._llm.abort(queue.request_id, internal=True)
            raise
        except Exception as cause:
            stream.keep()
            if isinstance(cause, CoreDied | EngineDeadError) or self._is_dead:
                raise CoreDied from cause
            raise GenerationError(f"vLLM: {type(cause).__name__}: {cause}") from cause
        finally:
            stream.lives += 1
            if queue is not None:
                queue.close()
        _keep_output(stream, said, None if adapter is None else adapter.lora_name)
        if said.outputs[0].finish_reason not in ("stop", "length") and not stream.is_moved:
            # "abort": its process was told to leave. What was said is true.
            raise CoreDied

    async def score(self, token_ids: list[int], *, whole_vocabulary: bool) -> Any:
        """Log-probabilities of a prompt as vLLM's `FlatLogprobs`, at temperature 1.

        Raises:
            CoreDied: meanwhile.
        """

        async def work(adapter: Any) -> Any:
            queue = await self._llm.add_request(
                uuid.uuid4().hex,
                {"prompt_token_ids": token_ids},
                scoring_params(whole_vocabulary=whole_vocabulary),
                lora_request=adapter,
                priority=URGENT,
            )
            try:
                return (await queue.get()).prompt_logprobs
            except asyncio.CancelledError:
                await self._llm.abort(queue.request_id, internal=True)
                raise

        with self.adapters.use() as adapter:
            return await self._ask(work(None if adapter is None else adapter.request()))

    async def push(self, staged: StagedWeights, *, clear_cache: bool, tries: int) -> float:
        """Swap a checked weight set in under the running requests.

        Args:
            staged: the weights, or an adapter alone; held until the next ones are in.
            clear_cache: whether running requests are read again under the new weights.
            tries: each begins anew with all weights; between them the engine stays paused.

        Returns:
            Seconds of the pause; with an adapter what vLLM took to load it between two steps.

        Raises:
            UpdateFailed: it is paused for good and has to be stopped.
            AdapterRefused: nothing has changed.
            CoreDied: meanwhile.
        """
        if staged.adapter is not None:
            return await self._ask(self._push_adapter(staged, move_all=clear_cache, tries=tries))
        info: Callable[[], dict[str, Any]] = staged.file_info
        copies: list[Any] = []
        if self._uses_ipc:
            # Onto the GPU before the pause.
            told, copies = await asyncio.to_thread(device_copies, staged)
            info = partial(dict, told)
        try:
            return await self._ask(self._push(staged, info, clear_cache, tries))
        finally:
            copies.clear()

    async def sleep(self) -> None:
        """Stand still: weights to the host, keys and values dropped; requests are kept.

        Raises:
            CoreDied: meanwhile.
        """
        await self._ask(self._llm.sleep(level=1, mode="keep"))

    async def wake(self) -> None:
        """Go on after `sleep`; harmless when it does not sleep.

        Raises:
            CoreDied: meanwhile.
        """
        if await self._ask(self._llm.is_sleeping()):
            await self._ask(self._llm.wake_up())

    async def stop(self) -> None:
        """End the processes at once; they hold nothing that must survive. Harmless when repeated.

        Whoever still waits for them gets `CoreDied`.
        """
        self._stopped = True
        self._close_pidfds()
        self.died.set()
        await asyncio.to_thread(self._end)
        self.adapters.close()

    def _end(self) -> None:
        llm, self._llm = self._llm, None
        if llm is None:
            return
        with contextlib.suppress(Exception):
            llm.shutdown(timeout=0)
        for process in self._processes:
            # Buried, or it would stay as a zombie.
            process.join(_BURIAL_S)
        left_names.bury()
        del llm
        # Its parts refer to each other; left to the end of ours they would complain.
        gc.collect()

    async def _connect(self, version: PolicyVersion, *, has_transfer: bool) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        if has_transfer:
            await self._llm.init_weight_transfer_engine(WeightTransferInitRequest(init_info={}))
        await self._llm.update_weight_version(str(version.packed))

    async def _push(
        self,
        staged: StagedWeights,
        info: Callable[[], dict[str, Any]],
        clear_cache: bool,
        tries: int,
    ) -> float:
        began = time.monotonic()
        await self._llm.pause_generation(mode="keep", clear_cache=clear_cache)
        what, version = f"update to weights {staged.version}", str(staged.version.packed)
        await self._tried(
            lambda: self._update(info(), version, clear_cache), what, tries, UpdateFailed
        )
        await self._llm.resume_generation()
        return time.monotonic() - began

    async def _push_adapter(self, staged: StagedWeights, *, move_all: bool, tries: int) -> float:
        """Load an adapter beside the others; requests go on under the one they began with.

        Then all of them are moved to it, or only those whose adapter is older than the one before.
        """
        kept = None if move_all else self.adapters.newest
        await self.adapters.drop_unused()
        what = f"load of adapter {staged.version}"
        load_s = await self._tried(lambda: self.adapters.add(staged), what, tries, AdapterRefused)
        stays = {self.adapters.newest, kept}
        moved = [s for s in self._streams if s.adapter not in stays]
        for stream in moved:
            stream.is_moved = True
        # One without an id is being sent, and ends itself as soon as it is.
        ids = [stream.request_id for stream in moved if stream.request_id is not None]
        if ids:
            await self._llm.abort(ids, internal=True)
        return load_s

    async def _tried(
        self, once: Callable[[], Awaitable[Any]], what: str, tries: int, given_up: type[Exception]
    ) -> float:
        """Do it until it succeeds, each time whole; the seconds of the time that did.

        Raises:
            Exception: of `given_up` after the last try; what the death of the process raised.
        """
        for attempt in range(1, tries + 1):
            began = time.monotonic()
            try:
                await once()
                break
            except Exception as cause:
                if self._is_dead:
                    raise
                self.failed_updates += 1
                logger.warning("%s failed, try %d of %d: %s", what, attempt, tries, cause)
                if attempt == tries:
                    raise given_up(str(cause)) from cause
        return time.monotonic() - began

    async def _update(self, info: dict[str, Any], version: str, clear_cache: bool) -> None:
        """One whole try. Whatever an earlier one has left is overwritten."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        await self._llm.start_weight_update()
        await self._llm.update_weights(WeightTransferUpdateRequest(update_info=info))
        await self._llm.finish_weight_update(version)
        if clear_cache and not await self._llm.reset_prefix_cache(reset_running_requests=True):
            raise RuntimeError("vLLM did not empty its prefix cache")

    async def _ask(self, work: Awaitable[T]) -> T:
        """The answer, or `CoreDied`: vLLM leaves calls without an answer when it dies."""
        from vllm.v1.engine.exceptions import EngineDeadError

        task = asyncio.ensure_future(work)
        death = asyncio.create_task(self.died.wait())
        try:
            await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise CoreDied
            return task.result()
        except EngineDeadError as cause:
            raise CoreDied from cause
        except Exception as cause:
            if self._is_dead and not isinstance(cause, CoreDied):
                raise CoreDied from cause
            raise
        finally:
            for other in (task, death):
                other.cancel()
            await asyncio.gather(task, death, return_exceptions=True)

    def _see_death(self) -> None:
        self._close_pidfds()
        self.died.set()
        if not self._stopped:
            self._on_death(self)

    def _close_pidfds(self) -> None:
        for fd in self._pidfds:
            self._loop.remove_reader(fd)
            os.close(fd)
        self._pidfds = []


def _make(arguments: dict[str, Any]) -> Any:
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))


def _keep_output(stream: Stream, output: Any, adapter: str | None) -> None:
    """Take a finished output; it has what the state has, and the spans in their final form."""
    stream.state = None
    said = output.outputs[0]
    ids = list(said.token_ids)
    logprobs = flat_logprobs(said.logprobs, ids) if ids else []
    spans = [(span.version, span.start, span.end) for span in said.weight_versions or ()]
    stream.versions += token_versions(spans, len(logprobs), adapter)
    stream.tokens += ids[: len(logprobs)]
    stream.logprobs += logprobs
    stream.keep_experts(said.routed_experts)
