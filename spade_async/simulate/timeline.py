"""Virtual time: things that happen later, in order, and nothing in between."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Timeline:
    """A heap of (second, action). Actions of the same second happen in the order they were set."""

    def __init__(self, passing: Callable[[float], None] = lambda seconds: None) -> None:
        """`passing` is told of every stretch of time in which nothing happens."""
        self.now_s = 0.0
        self._passing = passing
        self._order = itertools.count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it in so many seconds, at least 0."""
        heapq.heappush(self._heap, (self.now_s + seconds, next(self._order), action))

    def step(self) -> bool:
        """Do what comes next; False when nothing does."""
        if not self._heap:
            return False
        at_s, _, action = heapq.heappop(self._heap)
        if at_s > self.now_s:
            self._passing(at_s - self.now_s)
            self.now_s = at_s
        action()
        return True

    @property
    def is_due(self) -> bool:
        """Whether something else happens at this very second."""
        return bool(self._heap) and self._heap[0][0] <= self.now_s
