"""One generation request inside the engine thread."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spade_async.engine.protocol import Generation, Sampling


@dataclass(slots=True, eq=False)
class Request:
    """A request and what it has said so far. Owned by the engine thread once it is submitted."""

    prompt: list[int]
    sampling: Sampling
    uniforms: NDArray[np.float64] = field(init=False)
    """[max_new_tokens] The t-th one decides token t."""
    stops: frozenset[int] = field(init=False)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    experts: list[NDArray[np.int16]] = field(default_factory=list)
    """[tokens, routers, k] of each pass that read tokens of it, from the first token on."""
    cancelled: bool = False
    """Set by the front when nobody waits for the result any more."""
    fault: str | None = None
    """Why it ended without a result."""
    created_s: float = field(default_factory=time.monotonic)
    started_s: float | None = None
    """Since when it holds a slot."""

    def __post_init__(self) -> None:
        stream = np.random.Generator(np.random.PCG64(self.sampling.seed))
        self.uniforms = stream.random(self.sampling.max_new_tokens)
        self.stops = frozenset(self.sampling.stop_token_ids)

    @property
    def next_uniform(self) -> float:
        """Uniform number of the next token."""
        return float(self.uniforms[len(self.tokens)])

    @property
    def num_tokens(self) -> int:
        """Length of the sequence so far."""
        return len(self.prompt) + len(self.tokens)

    @property
    def done(self) -> bool:
        """Whether the last token ended it."""
        if not self.tokens:
            return False
        return self.tokens[-1] in self.stops or len(self.tokens) >= self.sampling.max_new_tokens

    def generation(self) -> Generation:
        """The result."""
        started_s = self.created_s if self.started_s is None else self.started_s
        return Generation(
            token_ids=np.asarray(self.tokens, dtype=np.int32),
            logprobs=np.asarray(self.logprobs, dtype=np.float32),
            versions=np.asarray(self.versions, dtype=np.int64),
            finish_reason="stop" if self.tokens[-1] in self.stops else "length",
            queue_s=started_s - self.created_s,
            experts=np.concatenate(self.experts) if self.experts else None,
        )
