"""Who holds a slot of vLLM and who waits, as its scheduler gives them: urgent first, then in order.

vLLM tells neither without its own statistics; both follow from what is sent and what has ended.
"""

from __future__ import annotations

import time

from spade_async.engine.vllm.stream import Stream


class Places:
    """Slots of one engine; also measures how long any was taken."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.running: list[Stream] = []
        self.waiting: list[Stream] = []
        self._began_s = time.monotonic()
        self._busy_s = 0.0
        self._busy_since_s: float | None = None

    def enter(self, stream: Stream) -> None:
        """A request is sent."""
        if stream.sampling.urgent:
            urgent = sum(other.sampling.urgent for other in self.waiting)
            self.waiting.insert(urgent, stream)
        else:
            self.waiting.append(stream)
        self._fill()

    def leave(self, stream: Stream) -> None:
        """It has ended, however."""
        for places in (self.running, self.waiting):
            if stream in places:
                places.remove(stream)
        self._fill()
        if not self.running and self._busy_since_s is not None:
            self._busy_s += time.monotonic() - self._busy_since_s
            self._busy_since_s = None

    @property
    def live(self) -> list[Stream]:
        """Requests that have not ended."""
        return [*self.running, *self.waiting]

    def stats(self) -> dict[str, float]:
        """busy_s, idle_s: seconds with and without a running request; active, waiting."""
        now_s = time.monotonic()
        busy_s = self._busy_s + (now_s - self._busy_since_s if self._busy_since_s else 0.0)
        return {
            "busy_s": busy_s,
            "idle_s": now_s - self._began_s - busy_s,
            "active": float(len(self.running)),
            "waiting": float(len(self.waiting)),
        }

    def _fill(self) -> None:
        while self.waiting and len(self.running) < self._slots:
            stream = self.waiting.pop(0)
            stream.started_s = time.monotonic()
            self.running.append(stream)
        if self.running and self._busy_since_s is None:
            self._busy_since_s = time.monotonic()
