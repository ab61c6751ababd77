"""Types of the native core. Only `spade_async.sandbox_core` imports it."""

from typing import Any, TypeAlias, final

from spade_async.types import CallReport, Outcome, Reply

_Completion: TypeAlias = Reply | str

RUNNER_SOURCE: str
"""The Python part of the jail: plain code that defines `prepare`."""

class JailError(Exception):
    """A fault of the jail itself."""

class JailBusy(JailError):
    """The bounded queue is full, or there is no room for a copy."""

def use_records(outcomes: dict[str, Outcome], reply: type[Reply], report: type[CallReport]) -> None:
    """Say once what replies are made of: outcomes by name, and the two records."""

@final
class MessageCodec:
    """Encodes and decodes ordinary messages of the link; None leaves one to `transport.codec`."""

    def __new__(
        cls,
        caps: tuple[int, int, int, int, int, int],
        records: list[dict[str, Any]],
        new: Any,
        from_buffer: Any,
    ) -> MessageCodec:
        """Take the caps and the records, see `transport.native`."""
    def encode(
        self, envelope: tuple[Any, ...], most_bytes: int, sizes: list[Any] | None, block: Any
    ) -> tuple[bytes, Any] | None:
        """The frames of an envelope; a block given with its sizes is sent as it lies."""
    def decode(self, header: bytes, block: Any, most_bytes: int) -> tuple[Any, ...] | None:
        """What two frames say, in the order of `codec.Envelope`."""

@final
class Core:
    """A running pool; usable from any thread of the process that started it."""

    def __new__(cls, limits: str) -> Core:
        """Start broker and templates from limits in TOML; waits until they are ready."""
    def open(self, source: str, seed_hex: str, profile: int, forkable: bool) -> int:
        """Ask for a worker and load a source; the number names session and operation."""
    def call(self, session: int, kind: int, body: str) -> int:
        """Start a call: kind 1 reset (seed in hexadecimal), 2 step, 3 hint, 5 nothing."""
    def fork(self, session: int, seed_hex: str) -> int:
        """Start a copy of a session; the number names copy and operation."""
    def open_now(
        self, source: str, seed_hex: str, profile: int, forkable: bool
    ) -> tuple[int, _Completion]:
        """`open`, and wait. Blocking pools only."""
    def acquire_now(self, profile: int) -> tuple[int, str | None]:
        """A session whose worker has nothing loaded, and the fault if there is none."""
    def call_now(self, session: int, kind: int, body: str) -> _Completion:
        """`call`, and wait. Blocking pools only."""
    def step_many(self, steps: list[tuple[int, str]]) -> list[_Completion]:
        """Steps on many sessions, all sent before the first is read. Blocking pools only."""
    def fork_now(self, session: int, seed_hex: str) -> tuple[int, _Completion]:
        """`fork`, and wait. Blocking pools only."""
    def release(self, session: int) -> None:
        """End a session; never waits."""
    def cancel(self, session: int) -> None:
        """End a session's worker now; a call in flight is a fault."""
    def used(self, session: int) -> dict[str, int | float | None] | None:
        """What a session has used; None when it has no worker."""
    def drain(self) -> list[tuple[int, _Completion]]:
        """Completions since the last drain. Not for blocking pools."""
    def done_fd(self) -> int:
        """Descriptor that becomes readable when `drain` has something."""
    def capabilities(self) -> dict[str, object]:
        """Level and layers, found out by doing."""
    def stats(self) -> list[tuple[str, int]]:
        """Counters and gauges."""
    def drain_latencies(self) -> list[float]:
        """Wall seconds per call since the last drain."""
    def drain_events(self) -> list[tuple[float, str, str, int | None, str]]:
        """Events since the last drain: unix time, kind, profile, session, detail."""
    def close(self) -> None:
        """End everything; returns when no process is left."""

def _broker_main() -> None: ...
def _template_main() -> None: ...
def _probe_template() -> None: ...
def _probe_echo() -> None: ...
def _probe_round_trips(requests: int, replies: int, count: int) -> list[int]: ...

__all__ = [
    "RUNNER_SOURCE",
    "Core",
    "JailBusy",
    "JailError",
    "MessageCodec",
    "_broker_main",
    "_probe_echo",
    "_probe_round_trips",
    "_probe_template",
    "_template_main",
    "use_records",
]
