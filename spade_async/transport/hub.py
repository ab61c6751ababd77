"""Coordinator's end of the link: one ROUTER socket, many peers.

Owns: the socket, one `Channel` per peer. May be called from its event loop only. Guarantees: a
reliable message is delivered once per incarnation and kept until acknowledged; a duplicate is never
delivered. When a peer dies its unacknowledged messages stay readable (`unacknowledged`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spade_async.config.schema import LinkConfig
from spade_async.transport.counters import LinkCounters
from spade_async.transport.messages import Message


@dataclass(frozen=True, slots=True)
class Received:
    """One delivered message. Call `ack` when its effect is durable; a no-op if unreliable."""

    peer: str
    """Name of the sender ("gen-0"; "coordinator" at a `Peer`)."""
    message: Message
    ack: Callable[[], None]
    """Queues the acknowledgement (many are sent in one small frame). Idempotent."""


@dataclass(frozen=True, slots=True)
class PeerState:
    """What the hub knows of one peer now."""

    incarnation: str
    pid: int
    last_seen_s: float
    """Seconds since anything came from it."""
    unacknowledged: int
    """Reliable messages sent to it and not acknowledged."""
    oldest_unacknowledged_s: float
    """Age of the oldest of them; 0 when there is none."""
    held: int
    """Messages from it that were delivered here and are not acknowledged yet."""


class Hub:
    """See the module. `start` binds, `close` closes with LINGER 0."""

    counters: LinkCounters

    def __init__(self, endpoint: str, config: LinkConfig) -> None:
        """`endpoint` is ipc://PATH or tcp://127.0.0.1:PORT (port * picks a free one)."""
        raise NotImplementedError

    @property
    def endpoint(self) -> str:
        """Address that peers connect to (with the real port after `start`)."""
        raise NotImplementedError

    async def start(self) -> None:
        """Bind. Raises TransportError when the address is refused or taken."""

    async def close(self, timeout_s: float = 0.0) -> None:
        """Close; with `timeout_s` wait up to that long for acknowledgements of what was sent."""

    async def send(self, peer: str, message: Message) -> None:
        """Queue a message for a peer (by name). Never waits for the network.

        Raises:
            TransportError: no such peer ever said Hello, or the message breaks its record.
        """

    async def receive(self) -> Received:
        """Next message; safe to cancel. A `Hello` is delivered once per incarnation and must be
        answered with ``send(name, Welcome(...))``."""
        raise NotImplementedError

    def receive_nowait(self) -> Received | None:
        """Next message that is already here, or None: drain, commit once, then ack all."""

    def peers(self) -> dict[str, PeerState]:
        """State by peer name (dead ones too until `forget`)."""
        raise NotImplementedError

    def unacknowledged(self, peer: str) -> list[Message]:
        """Reliable messages to the peer's present incarnation not acknowledged, oldest first."""
        raise NotImplementedError

    def take_orphans(self, peer: str) -> list[Message]:
        """Unacknowledged messages of earlier incarnations of the peer; returned once."""
        raise NotImplementedError

    def forget(self, peer: str) -> None:
        """Drop everything about a peer (it is dead and its work was re-issued)."""
