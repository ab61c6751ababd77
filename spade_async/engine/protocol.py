"""What every engine does: token ids in, token ids out, each with log-probability and version.

No torch here. Implementations: `builtin` (small models), `vllm` (real ones), `scripted` (tests).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spade_async.types import PolicyVersion


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one request is sampled. No top-p or top-k: they bias the importance ratio."""

    temperature: float
    """0 is greedy; log-probabilities are then those of temperature 1."""
    max_new_tokens: int
    stop_token_ids: tuple[int, ...]
    seed: int
    """Token t of the request uses the t-th uniform number of this seed's stream."""
    min_version: int = 0
    """Packed version that must be loaded before the first token is sampled."""
    version: int | None = None
    """Packed version to sample under, held by a lease (`leases.py`); None: whatever is newest."""
    urgent: bool = False
    """Goes before the requests that wait for a slot (the cache probe after a swap)."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Result of one request; arrays have length [T] = new tokens, the stop token included."""

    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    versions: NDArray[np.int64]
    finish_reason: str
    """"stop" or "length"."""
    queue_s: float = 0.0
    """Seconds it waited for a slot; part of the time that `generate` took."""
    experts: NDArray[np.int16] | None = None
    """[prompt + T - 1, routers, k] experts chosen for each token that was read, the prompt's first;
    NO_EXPERT where that is not known. None: no mixture, or an engine that does not say."""


class GenerationCancelled(asyncio.CancelledError):
    """A request was cancelled after it had sampled so many tokens."""

    def __init__(self, num_tokens: int) -> None:
        super().__init__()
        self.num_tokens = num_tokens


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a weight swap did."""

    version: PolicyVersion
    digest: str
    load_s: float
    pause_s: float


class Engine(Protocol):
    """Asynchronous engine; many requests in flight, weights swapped between decode steps.

    `attested.AttestedEngine` proves each swap with `tensor_digests`, `score` and `generate`: an
    implementation needs nothing more than these three to be guarded.
    """

    @property
    def dtype(self) -> str:
        """What it computes in: "float32", "float16" or "bfloat16"; sets the probe's tolerance."""

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Generation:
        """Sample one continuation.

        Raises:
            GenerationError: the prompt does not fit the context, or the engine died.
        """

    async def load_weights(self, version: PolicyVersion, location: str, digest: str) -> LoadReport:
        """Read, check and swap in a weight set while requests are in flight.

        The same version may be loaded again; an older one is refused.

        Raises:
            WeightsError: missing, damaged, or not the announced digest; nothing is swapped.
        """

    async def score(self, token_ids: list[int], temperature: float) -> NDArray[np.float32]:
        """Log-probability of each token but the first, [L - 1], under the present weights."""

    async def tensor_digests(self) -> dict[str, str]:
        """Digest of each weight as it stands in memory now, under its published name.

        See `weights.digest.tensor_digests`. {} from an engine that holds them in another form
        (fused, sharded, quantised): then the probe alone speaks for them.
        """

    async def sleep(self) -> None:
        """Stand still, and free what can be freed of the device until `wake`.

        Returns when it is free. Requests in flight keep their tokens and wait, as do new ones,
        scores and loads; keys and values are computed again afterwards. Once, then `wake` once.

        Raises:
            GenerationError: the engine is dead.
        """

    async def wake(self) -> None:
        """Go on after `sleep`.

        Raises:
            GenerationError: the engine is dead.
        """

    def stats(self) -> dict[str, float]:
        """Counters since start and gauges.

        tokens, requests, busy_s, idle_s, active, waiting, version (packed), swaps,
        recomputed_tokens; an implementation may add its own.
        """

    async def close(self) -> None:
        """Stop; requests in flight fail with GenerationError."""
