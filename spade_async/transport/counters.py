"""What a link counted since it was opened. Loss, duplicates and refusals are visible here."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outgoing:
    """Frames on their way to the socket."""

    frames: tuple[bytes, bytes]
    is_reliable: bool
    is_first: bool
    """False for repetitions and for acknowledgements alone."""


@dataclass(slots=True)
class LinkCounters:
    """Counters of one `Hub` or `Peer`; they only grow. `lost` must stay 0."""

    sent: int = 0
    """Messages handed to the socket for the first time."""
    received: int = 0
    """Messages delivered to the caller (duplicates and refused ones not counted)."""
    resent: int = 0
    """Further sendings of a message that was not acknowledged in time."""
    duplicates: int = 0
    """Messages that came again and were not delivered a second time."""
    lost: int = 0
    """Reliable messages given up without an acknowledgement (`Hub.forget` not counted)."""
    unreachable: int = 0
    """Sendings refused by the socket (peer away, pipe full); reliable ones are tried again."""
    dropped_unreliable: int = 0
    """Unreliable messages that found no route; a newer one supersedes them."""
    bytes_in: int = 0
    bytes_out: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """Incoming frames that were not delivered, by reason."""

    def refuse(self, reason: str) -> None:
        """Count one refused message."""
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def count_out(self, item: Outgoing) -> None:
        """Count frames that the socket took."""
        self.bytes_out += len(item.frames[0]) + len(item.frames[1])
        if item.is_first:
            self.sent += 1
        elif item.is_reliable:
            self.resent += 1

    def as_metrics(self) -> dict[str, float]:
        """Flat numbers, e.g. {"sent": 12.0, ..., "refused": 0.0} (all reasons together)."""
        names = (
            "sent", "received", "resent", "duplicates", "lost", "unreachable",
            "dropped_unreliable", "bytes_in", "bytes_out",
        )  # fmt: skip
        numbers = {name: float(getattr(self, name)) for name in names}
        numbers["refused"] = float(sum(self.refused.values()))
        return numbers
