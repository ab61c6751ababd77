"""What the learner is doing, written by the working thread and read by the heartbeat's."""

from __future__ import annotations

import time
from typing import Any


class UpdateCancelled(Exception):
    """The process was told to leave between two micro-batches; nothing was applied."""


class Progress:
    """State for heartbeats. Plain attribute writes only: readers may see any mix of two moments."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.num_tokens = 0
        self._state = "starting"
        self._waits_for = "model and checkpoint"
        self._count = 0
        self._busy_s = 0.0
        self._idle_s = 0.0
        self._since = time.monotonic()

    def tick(self) -> None:
        """One unit of work is done (a micro-batch, a save)."""
        self._count += 1

    def enter(self, state: str, waits_for: str = "") -> float:
        """Change the state ("starting", "idle", "working", "disk_full", "stopping").

        Returns:
            Seconds spent in the state before.
        """
        now = time.monotonic()
        spent = now - self._since
        if self._state == "working":
            self._busy_s += spent
        elif self._state == "idle":
            self._idle_s += spent
        self._state, self._waits_for, self._since = state, waits_for, now
        self._count += 1
        return spent

    def snapshot(self) -> dict[str, Any]:
        """Fields of a `Heartbeat`."""
        spent = time.monotonic() - self._since
        is_busy, is_idle = self._state == "working", self._state == "idle"
        return {
            "state": self._state,
            "waits_for": self._waits_for,
            "progress": self._count,
            "oldest_wait_s": spent if is_idle else 0.0,
            "metrics": {
                "busy_s": self._busy_s + (spent if is_busy else 0.0),
                "idle_s": self._idle_s + (spent if is_idle else 0.0),
                "steps": float(self.num_steps),
                "tokens": float(self.num_tokens),
            },
        }
