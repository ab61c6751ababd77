"""A slot cache in the shape that transformers' attention layers ask for."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache

from spade_async.engine.builtin.cache import SlotCache


class RowsOfCache(Cache):
    """Some consecutive rows of a `SlotCache` for one pass; see `Model.forward`."""

    def __init__(self, cache: SlotCache, first_row: int, positions: Tensor, tokens: int) -> None:
        super().__init__(layers=[])
        self._cache = cache
        self._first_row = first_row
        self._rows = positions.shape[0]
        self._tokens = tokens
        self._places = cache.places(first_row, positions)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store [rows, kv_heads, new, head_dim]; give all entries the pass may look at."""
        entries = [states.transpose(1, 2).flatten(0, 2) for states in (key_states, value_states)]
        self._cache.write(layer_idx, self._places, *entries)
        return self._cache.read(layer_idx, self._first_row, self._rows, self._tokens)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Unused by the models (positions are explicit); 0 keeps them from cropping inputs."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Length and offset of what `update` gives."""
        return self._tokens, 0
