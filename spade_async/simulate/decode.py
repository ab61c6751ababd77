"""Decoding in virtual time: all active sequences get a token per step, more of them slow the step.

A step takes ``fixed_s + per_sequence_s * active``. The state is the number of steps done so far; a
sequence ends when that number has grown by its length, so only ends are events.
"""

from __future__ import annotations

import heapq
import math
from collections import deque


class DecodeSlots:
    """Slots of one engine and the sequences that wait for one, first come first served."""

    def __init__(self, slots: int, *, fixed_s: float, per_sequence_s: float) -> None:
        self._slots = slots
        self._fixed_s, self._per_sequence_s = fixed_s, per_sequence_s
        self._steps_done = 0.0
        self._ends: list[tuple[float, float, str]] = []
        """Heap of (steps done at its end, at its start, group) of every active sequence."""
        self._queue: deque[tuple[str, float]] = deque()
        self._ended: dict[str, float] = {}
        """Tokens of ended sequences by group."""
        self.busy_s = 0.0
        """Seconds with at least one active sequence."""

    @property
    def has_room(self) -> bool:
        """A slot is free and nothing waits."""
        return not self._queue and len(self._ends) < self._slots

    def submit(self, group: str, lengths: list[float]) -> None:
        """Queue the sequences of a group."""
        self._queue.extend((group, length) for length in lengths)
        self._fill()

    def next_end_s(self) -> float:
        """Seconds until the next sequence ends if nothing changes; inf when none is active."""
        if not self._ends:
            return math.inf
        return max(self._ends[0][0] - self._steps_done, 0.0) * self._step_s

    def advance(self, seconds: float) -> None:
        """Let time pass; at most `next_end_s` at once."""
        if self._ends:
            self._steps_done += seconds / self._step_s
            self.busy_s += seconds

    def pop_ended(self) -> str:
        """The group of the sequence that ends now."""
        end, start, group = heapq.heappop(self._ends)
        self._ended[group] = self._ended.get(group, 0.0) + end - start
        self._steps_done = max(self._steps_done, end)
        self._fill()
        return group

    def cancel(self, group: str) -> float:
        """Stop a group's sequences; tokens it had decoded, those of ended sequences included."""
        self._queue = deque(item for item in self._queue if item[0] != group)
        decoded = self._ended.pop(group, 0.0)
        decoded += sum(self._steps_done - start for _, start, name in self._ends if name == group)
        self._ends = [item for item in self._ends if item[2] != group]
        heapq.heapify(self._ends)
        self._fill()
        return decoded

    @property
    def _step_s(self) -> float:
        return self._fixed_s + self._per_sequence_s * len(self._ends)

    def _fill(self) -> None:
        while self._queue and len(self._ends) < self._slots:
            group, length = self._queue.popleft()
            now = self._steps_done
            heapq.heappush(self._ends, (now + length, now, group))
