"""Builds the `TokenTrace` of one sample from prompt pieces and generations, in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spade_async.engine.protocol import Generation
from spade_async.engine.routes import Routes
from spade_async.types import NO_VERSION, TokenTrace, joined_experts


class TraceBuilder:
    """Grows a trace; `ids` is at any time the exact prompt of the next request.

    Most traces are one token sequence. One that is begun anew at a turn is several, each with a
    prompt of its own.
    """

    def __init__(self, prompt_ids: list[int]) -> None:
        self.ids: list[int] = []
        self._before: list[list[int]] = []
        """Sequences that are complete."""
        self._mask: list[NDArray[np.uint8]] = []
        self._logprobs: list[NDArray[np.float32]] = []
        self._versions: list[NDArray[np.int64]] = []
        self._routes = [Routes()]
        """Of each sequence, the present one last."""
        self.add_given(prompt_ids)

    def begin(self, prompt_ids: list[int]) -> None:
        """Begin another sequence with a prompt that does not continue the present one."""
        self._before.append(self.ids)
        self.ids = []
        self._routes.append(Routes())
        self.add_given(prompt_ids)

    def add_given(self, ids: list[int]) -> None:
        """Append tokens no policy sampled (prompt, observation)."""
        self.ids += ids
        self._mask.append(np.zeros(len(ids), np.uint8))
        self._logprobs.append(np.zeros(len(ids), np.float32))
        self._versions.append(np.full(len(ids), NO_VERSION, np.int64))

    def add_sampled(self, generation: Generation) -> None:
        """Append what the engine sampled, verbatim.

        Raises:
            ValueError: the engine's arrays have different lengths.
        """
        num = len(generation.token_ids)
        if not num == len(generation.logprobs) == len(generation.versions):
            raise ValueError(
                f"generation of {num} tokens has {len(generation.logprobs)} log-probabilities "
                f"and {len(generation.versions)} versions"
            )
        self.ids += [int(token) for token in generation.token_ids]
        self._mask.append(np.ones(num, np.uint8))
        self._logprobs.append(np.asarray(generation.logprobs, np.float32))
        self._versions.append(np.asarray(generation.versions, np.int64))
        self._routes[-1].add(generation.experts)

    def build(self) -> TokenTrace:
        """The trace so far; a last sequence in which nothing was sampled is left out."""
        mask = np.concatenate(self._mask)
        starts = np.cumsum([0, *(len(ids) for ids in self._before)]).tolist()
        end = len(mask)
        if self._before and not mask[starts[-1] :].any():
            end = starts.pop()
        ids = [token for part in (*self._before, self.ids) for token in part]
        return TokenTrace(
            token_ids=np.asarray(ids, np.int32)[:end],
            loss_mask=mask[:end],
            generator_logprobs=np.concatenate(self._logprobs)[:end],
            versions=np.concatenate(self._versions)[:end],
            starts=tuple(starts) if len(starts) > 1 else (),
            experts=self._experts(end),
        )

    def _experts(self, end: int) -> NDArray[np.int16] | None:
        """Experts of the first `end` tokens of all sequences together."""
        lengths = [len(ids) for ids in (*self._before, self.ids)]
        pairs = zip(self._routes, lengths, strict=True)
        found = joined_experts([(routes.array(n), n) for routes, n in pairs])
        return None if found is None else found[:end]
