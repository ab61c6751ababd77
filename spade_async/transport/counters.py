"""What a link counted since it was opened. Loss, duplicates and refusals are visible here."""

from __future__ import annotations

from dataclasses import dataclass, field

from spade_async.transport.codec import Frames


@dataclass(slots=True)
class Outgoing:
    """Frames on their way to the socket."""

    frames: Frames
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
    connections_ended: int = 0
    """A part left, the network cut it, or the other side broke the protocol of ZeroMQ itself, e.g.
    by a frame above twice `link.max_message_bytes`."""
    bytes_in: int = 0
    bytes_out: int = 0
    busy_s: float = 0.0
    """CPU seconds of our event loop in the link: packing, checking, sending, receiving. ZeroMQ's
    own thread, which copies to and from the kernel and encrypts, is not in it."""
    frames_in: int = 0
    """What the socket gave us: received + duplicates + control + all refused, exactly."""
    control: int = 0
    """Acknowledgements alone and repeated greetings."""
    refused: dict[str, int] = field(default_factory=dict)
    """Incoming frames that were not delivered, by reason; docs/link.md lists the reasons."""
    failed_handshakes: dict[str, int] = field(default_factory=dict)
    """Connections that were not made, by reason ("key", "protocol", "gone")."""

    def refuse(self, reason: str) -> None:
        """Count one refused message."""
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def fail_handshake(self, reason: str) -> None:
        """Count one connection that was not made."""
        self.failed_handshakes[reason] = self.failed_handshakes.get(reason, 0) + 1

    def count_out(self, item: Outgoing) -> None:
        """Count frames that the socket took."""
        self.bytes_out += len(item.frames[0]) + len(item.frames[1])
        if item.is_first:
            self.sent += 1
        elif item.is_reliable:
            self.resent += 1

    def as_metrics(self) -> dict[str, float]:
        """Flat numbers, e.g. {"sent": 12.0, ..., "refused": 3.0, "refused/checksum": 3.0}.

        "refused" is all reasons together; a reason that never came is absent.
        """
        numbers = {name: float(getattr(self, name)) for name in _NUMBERS}
        numbers["refused"] = float(sum(self.refused.values()))
        numbers |= {f"refused/{reason}": float(num) for reason, num in self.refused.items()}
        numbers["failed_handshakes"] = float(sum(self.failed_handshakes.values()))
        return numbers


_NUMBERS = (
    "sent", "received", "resent", "duplicates", "lost", "unreachable", "dropped_unreliable",
    "connections_ended", "bytes_in", "bytes_out", "busy_s", "frames_in", "control",
)  # fmt: skip
