"""Keys and values of the running requests: one row per request, active rows always first.

Rows 0..n-1 are the running requests, so that what a pass reads is a plain slice and nothing is
gathered. When a request leaves, the last row moves into its place. A row is written at its own
positions; what lies beyond its length is stale and masked until it is overwritten.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BUCKET = 64
"""Capacity grows in steps of at least this many tokens (and by half), to reallocate rarely."""


class SlotCache:
    """Storage [slots, kv_heads, capacity, head_dim] per layer, for keys and for values.

    This order makes what one head reads contiguous: on a CPU attention is bound by memory, and the
    order with tokens before heads costs 1.2 to 3 times as much. Grown on demand up to `max_tokens`.
    """

    def __init__(
        self, num_layers: int, slots: int, kv_heads: int, head_dim: int, max_tokens: int
    ) -> None:
        self.slots = slots
        self.max_tokens = max_tokens
        self.capacity = 0
        self._entry = (kv_heads, head_dim)
        self._layers = num_layers
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.reserve(min(_BUCKET, max_tokens))

    def reserve(self, tokens: int) -> None:
        """Make room for rows of this many tokens; kept entries stay."""
        if tokens <= self.capacity:
            return
        wanted = max(tokens, self.capacity + self.capacity // 2)
        capacity = min(-(-wanted // _BUCKET) * _BUCKET, max(self.max_tokens, tokens))
        self.keys = self._grown(self.keys, capacity)
        self.values = self._grown(self.values, capacity)
        self.capacity = capacity

    def places(self, first_row: int, positions: Tensor) -> Tensor:
        """Flat indices [rows * tokens * kv_heads] of positions [rows, tokens], for `write`."""
        kv_heads = self._entry[0]
        rows = torch.arange(first_row, first_row + positions.shape[0])
        heads = rows.unsqueeze(1) * kv_heads + torch.arange(kv_heads)
        return (heads.unsqueeze(1) * self.capacity + positions.unsqueeze(2)).flatten()

    def write(self, layer: int, places: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store entries [rows * tokens * kv_heads, head_dim] at flat indices."""
        size = self._entry[1]
        self.keys[layer].view(-1, size).index_copy_(0, places, keys)
        self.values[layer].view(-1, size).index_copy_(0, places, values)

    def read(self, layer: int, first_row: int, rows: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Views [rows, kv_heads, tokens, head_dim] of the first `tokens` entries of these rows."""
        last_row = first_row + rows
        keys = self.keys[layer][first_row:last_row, :, :tokens]
        return keys, self.values[layer][first_row:last_row, :, :tokens]

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` entries of one row over another."""
        for storage in (*self.keys, *self.values):
            storage[target, :, :tokens] = storage[source, :, :tokens]

    def clear(self, row: int) -> None:
        """Zero a row: stale non-finite entries would spoil its next request through the mask."""
        for storage in (*self.keys, *self.values):
            storage[row].zero_()

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))

    def _grown(self, old: list[Tensor], capacity: int) -> list[Tensor]:
        new = []
        for layer in range(self._layers):
            # Zeros, not empty: a masked entry must be finite, or 0 * NaN reaches the output.
            storage = torch.zeros(self.slots, self._entry[0], capacity, self._entry[1])
            if old:
                storage[:, :, : self.capacity] = old[layer]
            new.append(storage)
        return new


def causal_mask(positions: Tensor, tokens: int) -> Tensor:
    """Additive mask [rows, 1, queries, tokens]: a query at position p sees its row's 0..p."""
    hidden = torch.arange(tokens) > positions.unsqueeze(-1)
    mask = torch.zeros(hidden.shape)
    return mask.masked_fill_(hidden, float("-inf")).unsqueeze(1)
