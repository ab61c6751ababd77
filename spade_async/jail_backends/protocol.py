"""What the facades of the sandbox ask of a core, whichever backend serves."""

from __future__ import annotations

from typing import Any, Protocol

from spade_async.jail_backends.answer import Row


class Core(Protocol):
    """The native core and `ProcessCore`. Methods may be called from any thread of its process."""

    def open(self, source: str, seed_hex: str, profile: int, forkable: bool) -> int:
        """Ask for a worker and load a source; the number names the session and the operation."""

    def open_now(
        self, source: str, seed_hex: str, profile: int, forkable: bool
    ) -> tuple[int, Row | str]:
        """`open`, and wait."""

    def call(self, session: int, kind: int, body: str) -> int:
        """Call a session: kind 1 reset (seed in hexadecimal), 2 step, 3 hint, 5 nothing."""

    def call_now(self, session: int, kind: int, body: str) -> Row | str:
        """`call`, and wait."""

    def step_many(self, steps: list[tuple[int, str]]) -> list[Row | str]:
        """Steps on many sessions, all sent before the first answer is read."""

    def fork(self, session: int, seed_hex: str) -> int:
        """Start a copy of a session; the number names the copy and the operation."""

    def fork_now(self, session: int, seed_hex: str) -> tuple[int, Row | str]:
        """`fork`, and wait."""

    def release(self, session: int) -> None:
        """End a session without waiting."""

    def cancel(self, session: int) -> None:
        """End a session's worker now; a call in flight is a fault."""

    def used(self, session: int) -> dict[str, int | float | None] | None:
        """What a session has used; None when it has no worker."""

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

    def drain_events(self) -> list[tuple[float, str, str, int | None, str]]:
        """Events since the last drain: unix time, kind, profile, session, detail."""

    def close(self) -> None:
        """End everything; returns when no process is left."""
