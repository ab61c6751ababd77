"""The experts that an engine chose for the tokens of one sequence, as they become known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spade_async.types import NO_EXPERT


def router_modules(model: Any) -> list[Any]:
    """Modules that give (logits [T, E], weights [T, k], indices [T, k]) of the chosen experts.

    In the order of the layers; [] of a model without a mixture of experts.
    """
    return [m for m in model.modules() if type(m).__name__.endswith("TopKRouter")]


class Routes:
    """Grows with the requests of one sequence; each says anew what it read from the beginning.

    What is known of a token stays: its successors were sampled behind the experts of that time. A
    later request may have read it again, under other weights and other experts.
    """

    def __init__(self) -> None:
        self._parts: list[NDArray[np.int16]] = []
        self._num_tokens = 0

    def add(self, experts: NDArray[np.integer] | None) -> None:
        """Take what a request says.

        Args:
            experts: [tokens, routers, k] from the first token of the sequence on; None: nothing.

        Raises:
            ValueError: other routers than before.
        """
        if experts is None or len(experts) <= self._num_tokens:
            return
        if experts.ndim != 3 or (self._parts and experts.shape[1:] != self._parts[0].shape[1:]):
            before = self._parts[0].shape[1:] if self._parts else "(routers, k)"
            raise ValueError(f"experts of shape {experts.shape}, expected (tokens, *{before})")
        self._parts.append(experts[self._num_tokens :].astype(np.int16))
        self._num_tokens = len(experts)

    def array(self, num_tokens: int) -> NDArray[np.int16] | None:
        """[num_tokens, routers, k], NO_EXPERT where nothing was said; None when nothing was."""
        if not self._parts:
            return None
        shape = self._parts[0].shape[1:]
        missing = np.full((max(0, num_tokens - self._num_tokens), *shape), NO_EXPERT, np.int16)
        return np.concatenate([*self._parts, missing])[:num_tokens]
