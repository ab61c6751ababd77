"""One request: what it has said so far, over all lives of the engine.

vLLM's front keeps the tokens, log-probabilities and weight versions of a running request as they
come in, step by step (`RequestState`). They are read there, so that nothing is lost when the engine
dies and no task is woken per token. The versions are vLLM's own; there is no other source.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spade_async.engine.protocol import Generation, Sampling
from spade_async.engine.routes import Routes
from spade_async.engine.vllm.adapters import Adapter, version_of
from spade_async.errors import GenerationError
from spade_async.seeds import derive
from spade_async.types import PolicyVersion


@dataclass(slots=True, eq=False)
class Stream:
    """A request and its tokens."""

    prompt: list[int]
    sampling: Sampling
    tokens: list[int] = field(default_factory=list)
    """Those that are kept; what a living engine has said beyond them is in `state`."""
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    routes: Routes = field(default_factory=Routes)
    """Experts of the kept tokens and of the prompt, where vLLM says."""
    state: Any = None
    """vLLM's `RequestState` of the life that works on it."""
    request_id: str | None = None
    """vLLM's, while a life works on it."""
    adapter: Adapter | None = None
    """What that life runs with; None: the weights of the engine as they are."""
    is_moved: bool = False
    """That life was told to end, so that another one goes on with a newer adapter."""
    lives: int = 0
    """How many times it was sent to an engine."""
    created_s: float = field(default_factory=time.monotonic)
    started_s: float | None = None
    """Since when it holds a slot."""

    @property
    def num_tokens(self) -> int:
        """Tokens so far, those of the running life included."""
        running = 0 if self.state is None else self.state.detokenizer.num_output_tokens()
        return len(self.tokens) + int(running)

    @property
    def is_done(self) -> bool:
        """Whether the kept tokens end it."""
        if not self.tokens:
            return False
        return self._stopped or len(self.tokens) >= self.sampling.max_new_tokens

    @property
    def _stopped(self) -> bool:
        return self.tokens[-1] in self.sampling.stop_token_ids

    @property
    def seed(self) -> int:
        """Seed of the next life: with the same one its first random numbers would come again."""
        if self.lives == 0:
            return self.sampling.seed
        return derive(self.sampling.seed, "life", self.lives)

    def keep(self) -> None:
        """Take what the life in `state` has said; it says no more."""
        state, self.state = self.state, None
        if state is None:
            return
        ids = list(state.detokenizer.output_token_ids)
        logprobs = flat_logprobs(state.logprobs_processor.logprobs, ids)
        count = len(logprobs)
        starts = [*state.weight_version_starts, ("", count)]
        spans = [(starts[i][0], starts[i][1], starts[i + 1][1]) for i in range(len(starts) - 1)]
        self.tokens += ids[:count]
        self.logprobs += logprobs
        self.versions += token_versions(spans, count, state.lora_name)
        if state.routed_experts_chunks:
            self.keep_experts(np.concatenate(state.routed_experts_chunks))

    def keep_experts(self, experts: NDArray[np.integer] | None) -> None:
        """Take vLLM's [tokens, layers, k] of one life; the last kept token was not read by it."""
        if experts is not None:
            self.routes.add(experts[: len(self.prompt) + len(self.tokens) - 1])

    def generation(self) -> Generation:
        """The result.

        Raises:
            GenerationError: a log-probability is not finite.
        """
        logprobs = np.asarray(self.logprobs, dtype=np.float32)
        if not np.isfinite(logprobs).all():
            version = PolicyVersion.unpack(self.versions[-1])
            raise GenerationError(f"the model's output is not finite (weights {version})")
        started_s = self.created_s if self.started_s is None else self.started_s
        return Generation(
            token_ids=np.asarray(self.tokens, dtype=np.int32),
            logprobs=logprobs,
            versions=np.asarray(self.versions, dtype=np.int64),
            finish_reason="stop" if self._stopped else "length",
            queue_s=started_s - self.created_s,
            experts=self.routes.array(len(self.prompt) + len(self.tokens) - 1),
        )


def flat_logprobs(found: Any, ids: Sequence[int]) -> list[float]:
    """Log-probability of each sampled token from vLLM's `FlatLogprobs`; of as many as it has."""
    places = found.start_indices[: len(ids)]
    assert [found.token_ids[i] for i in places] == list(ids)[: len(places)]
    return [float(found.logprobs[i]) for i in places]


def token_versions(
    spans: Sequence[tuple[str, int, int]], count: int, adapter: str | None
) -> list[int]:
    """Packed version of each of `count` tokens of one life.

    Args:
        spans: vLLM's (version, start, end) of the weights; with an adapter they name the frozen
            ones.
        count: how many tokens it said.
        adapter: name of the adapter it ran with from its first token to its last, or None.
    """
    if adapter is not None:
        return [version_of(adapter)] * count
    return span_versions(spans, count)


def span_versions(spans: Sequence[tuple[str, int, int]], count: int) -> list[int]:
    """Packed version of each of `count` tokens from (version, start, end).

    Raises:
        GenerationError: the spans do not cover the tokens.
    """
    versions: list[int] = []
    for version, start, end in spans:
        start, end = min(start, count), min(end, count)
        if start != len(versions):
            break
        versions += [int(version)] * (end - start)
    if len(versions) != count:
        raise GenerationError(f"vLLM names the weights of {len(versions)} of {count} tokens")
    return versions
