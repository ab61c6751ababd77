"""Continuous batching: requests join and leave at each decode step. One thread, no asyncio.

A step reads the prompts of some waiting requests in one pass (`engine.prefill_tokens`), then gives
every running request one more token. Weights are swapped between two steps.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

import torch
from torch import Tensor

from spade_async.engine.builtin.model import Model
from spade_async.engine.builtin.request import Request
from spade_async.engine.builtin.sampler import sample


class Decoder:
    """The running and waiting requests of one model. Every call from the same thread.

    Args:
        model: the network.
        slots: most requests that run together.
        prefill_tokens: most tokens, padding included, of one prompt pass.
        max_context_tokens: longest sequence.
        version: packed version of the model's weights.
        recompute: whether a swap computes the KV of running requests again.
    """

    def __init__(
        self,
        model: Model,
        *,
        slots: int,
        prefill_tokens: int,
        max_context_tokens: int,
        version: int,
        recompute: bool,
    ) -> None:
        self.model = model
        self.version = version
        self.cache = model.new_cache(slots, max_context_tokens)
        self.running: list[Request] = []
        """Row i of the cache belongs to running[i]."""
        self.ready: deque[Request] = deque()
        self.held: list[Request] = []
        """Requests whose min_version is not loaded yet."""
        self.num_tokens = 0
        self.num_steps = 0
        self.num_swaps = 0
        self.num_recomputed_tokens = 0
        self.slots = slots
        """Most requests that run together; may be lowered down to what runs."""
        self._prefill_tokens = prefill_tokens
        self._recompute = recompute
        self._last = torch.zeros(slots, dtype=torch.int64)
        """Newest token of each row; its KV is written by the next step."""
        self._lengths = torch.zeros(slots, dtype=torch.int64)
        """Entries of each row in the cache."""
        self._temperatures = torch.ones(slots)

    @property
    def has_work(self) -> bool:
        """Whether `step` would do something."""
        return bool(self.running or self.ready)

    def submit(self, request: Request) -> None:
        """Queue a request, first come first served once its version is there."""
        if request.sampling.min_version > self.version:
            self.held.append(request)
        elif request.sampling.urgent:
            self.ready.appendleft(request)
        else:
            self.ready.append(request)

    def step(self) -> list[Request]:
        """Admit, decode once; gives the requests that ended (result or `fault`)."""
        self.drop_cancelled()
        ended = self._admit()
        if self.running:
            count = len(self.running)
            self.num_steps += 1
            self.cache.reserve(max(request.num_tokens for request in self.running))
            logits = self.model.forward(
                self.cache,
                0,
                self._last[:count].unsqueeze(1),
                self._lengths[:count].unsqueeze(1),
                torch.zeros(count, dtype=torch.int64),
            )
            self._lengths[:count] += 1
            self._note_experts(0, [1] * count, self.model.chosen)
            ended += self._take_tokens(0, logits)
        return ended

    def drop_cancelled(self) -> None:
        """Forget the requests nobody waits for."""
        if any(request.cancelled for request in self.running):
            self._release(i for i, request in enumerate(self.running) if request.cancelled)
        if any(request.cancelled for request in self.ready):
            self.ready = deque(request for request in self.ready if not request.cancelled)
        if any(request.cancelled for request in self.held):
            self.held = [request for request in self.held if not request.cancelled]

    def swap(self, weights: dict[str, Tensor], version: int) -> None:
        """Take checked weights; recompute what running requests have in the cache, if so set."""
        self.model.parameters.swap(weights)
        self.version = version
        self.num_swaps += 1
        if self._recompute:
            # The newest token is not in the cache yet: the next step writes it.
            written = [(r.prompt + r.tokens)[:-1] for r in self.running]
            first = 0
            while first < len(written):
                count = _fitting((len(s) for s in written[first:]), self._prefill_tokens)
                # The experts of the first reading stay, see `Routes`.
                self._read(first, written[first : first + count])
                first += count
            self.num_recomputed_tokens += sum(map(len, written))
        held, self.held = self.held, []
        for request in held:
            self.submit(request)

    def _admit(self) -> list[Request]:
        free = max(self.slots - len(self.running), 0)
        if not free or not self.ready:
            return []
        first = len(self.running)
        candidates = [self.ready[i] for i in range(min(free, len(self.ready)))]
        count = _fitting((len(r.prompt) for r in candidates), self._prefill_tokens)
        for request in candidates[:count]:
            self.ready.popleft()
            row = len(self.running)
            self._lengths[row] = len(request.prompt)
            self._temperatures[row] = request.sampling.temperature
            request.started_s = time.monotonic()
            self.running.append(request)
        logits, chosen = self._read(first, [request.prompt for request in candidates[:count]])
        self._note_experts(first, [len(r.prompt) for r in candidates[:count]], chosen)
        return self._take_tokens(first, logits)

    def _note_experts(self, first_row: int, lengths: list[int], chosen: Tensor | None) -> None:
        """Keep the experts [rows, tokens, routers, k] of each row's first tokens."""
        if chosen is None:
            return
        found = chosen.to(torch.int16).numpy()
        for row, length in enumerate(lengths):
            self.running[first_row + row].experts.append(found[row, :length].copy())

    def _read(self, first_row: int, sequences: list[list[int]]) -> tuple[Tensor, Tensor | None]:
        """Write whole sequences into rows.

        Returns:
            Logits [rows, vocabulary] after their last tokens; experts [rows, tokens, routers, k].
        """
        rows = len(sequences)
        lengths = torch.tensor([len(s) for s in sequences])
        longest = int(lengths.max())
        self.cache.reserve(longest)
        ids = torch.zeros(rows, longest, dtype=torch.int64)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = torch.tensor(sequence)
        width = max(1, self._prefill_tokens // rows)
        result: Tensor | None = None
        chosen: list[Tensor] = []
        for start in range(0, longest, width):
            piece = ids[:, start : start + width]
            positions = torch.arange(start, start + piece.shape[1]).expand_as(piece)
            last = (lengths - 1 - start).clamp(0, piece.shape[1] - 1)
            logits = self.model.forward(self.cache, first_row, piece, positions, last)
            # Only a single long sequence is read in pieces: the last piece holds its last token.
            result = logits
            if self.model.chosen is not None:
                chosen.append(self.model.chosen)
        assert result is not None
        return result, torch.cat(chosen, dim=1) if chosen else None

    def _take_tokens(self, first_row: int, logits: Tensor) -> list[Request]:
        """Sample one token for each row from `first_row` on; gives the requests that ended."""
        requests = self.running[first_row:]
        uniforms = torch.tensor([r.next_uniform for r in requests], dtype=torch.float64)
        last_row = first_row + len(requests)
        sampled = sample(logits, self._temperatures[first_row:last_row], uniforms)
        self._last[first_row:last_row] = sampled.ids
        self.num_tokens += len(requests)
        ended = []
        for row, (request, token, logprob) in enumerate(
            zip(requests, sampled.ids.tolist(), sampled.logprobs.tolist(), strict=True), first_row
        ):
            request.tokens.append(token)
            request.logprobs.append(logprob)
            request.versions.append(self.version)
            if not logprob > float("-inf"):
                request.fault = f"the model's output is not finite (weights {self.version})"
                self.cache.clear(row)
                ended.append(row)
            elif request.done:
                ended.append(row)
        results = [self.running[row] for row in ended]
        self._release(ended)
        return results

    def _release(self, rows: Iterable[int]) -> None:
        """Free rows; the last row moves into each hole, so that running rows stay together."""
        for row in sorted(rows, reverse=True):
            last = len(self.running) - 1
            if row != last:
                self.cache.move(last, row, int(self._lengths[last]))
                for state in (self._last, self._lengths, self._temperatures):
                    state[row] = state[last]
                self.running[row] = self.running[last]
            self.running.pop()


def _fitting(lengths: Iterable[int], limit: int) -> int:
    """How many of these sequences, padded to the longest, fit the limit; at least one."""
    longest = count = 0
    for length in lengths:
        longest = max(longest, length)
        if count and longest * (count + 1) > limit:
            break
        count += 1
    return count
