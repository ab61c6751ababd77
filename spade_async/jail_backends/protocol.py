"""What the facades in `spade_async.sandbox` ask of a core, whichever backend serves."""

from __future__ import annotations

from typing import Any, Protocol

from spade_async.jail_backends.answer import Row


class Core(Protocol):
    """The native core and `ProcessCore`. Methods may be called from any thread of its process."""

    def open(self, source: str, seed_hex: str) -> int:
        """Ask for a worker and load a source; the number names the session and the operation."""

    def call(self, session: int, kind: int, body: str) -> int:
        """Call a session: kind 1 reset (seed in hexadecimal), 2 step (action), 3 hint."""

    def release(self, session: int) -> None:
        """End a session without waiting."""

    def wait(self, operation: int) -> Row | str:
        """Wait for one operation: its row, or the text of a fault."""

    def drain(self) -> list[tuple[int, Row | str]]:
        """All completions since the last drain, by operation."""

    def done_fd(self) -> int:
        """Descriptor that becomes readable when `drain` has something."""

    def capabilities(self) -> dict[str, Any]:
        """Level and layers, found out at the start by doing."""

    def stats(self) -> list[tuple[str, int]]:
        """Counters and gauges by name."""

    def drain_latencies(self) -> list[float]:
        """Wall seconds per call since the last drain."""

    def close(self) -> None:
        """End everything; returns when no process is left."""
