"""Coordinator's end of the link: one ROUTER socket, many peers.

Owns: the socket, one `Channel` per peer. May be called from its event loop only. Guarantees: a
reliable message is delivered once per incarnation and kept until acknowledged; a duplicate is never
delivered. When a peer dies its unacknowledged messages stay readable (`unacknowledged`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from spade_async.config.schema import LinkConfig
from spade_async.errors import TransportError
from spade_async.transport.block import Buffer
from spade_async.transport.channel import Channel, Received
from spade_async.transport.codec import Envelope, FrameError, Frames, decode, encode
from spade_async.transport.counters import LinkCounters
from spade_async.transport.endpoint import check_endpoint
from spade_async.transport.gate import Gate
from spade_async.transport.inbox import Inbox
from spade_async.transport.keys import load_server_keys
from spade_async.transport.messages import SCHEMA, Hello, Message, Welcome
from spade_async.transport.pump import Pump
from spade_async.transport.sockets import CONNECTED, ENDED, Connections, Context, router

__all__ = ["Hub", "PeerState", "Received"]

_LOG = logging.getLogger(__name__)
_MOST_PEERS = 1024
"""Names that may say Hello: a peer is remembered until it is forgotten."""


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


@dataclass(slots=True)
class _Entry:
    hello: Hello
    routing_id: bytes
    channel: Channel
    last_seen_s: float
    welcome: Frames | None = None
    orphans: list[Message] = field(default_factory=list)


class Hub:
    """See the module. `start` binds, `close` closes with LINGER 0."""

    def __init__(self, endpoint: str, config: LinkConfig) -> None:
        """`endpoint` is ipc://PATH or tcp://ADDRESS:PORT (port * picks a free one).

        Off loopback `config.keys` must name the keys; with them only known clients are let in.
        """
        self._endpoint = endpoint
        self._config = config
        self._incarnation = secrets.token_hex(4)
        self._entries: dict[str, _Entry] = {}
        self._routes: dict[bytes, _Entry] = {}
        """The same by routing id."""
        self._inbox = Inbox("hub")
        self._context: Context | None = None
        self._pump: Pump | None = None
        self._gate: Gate | None = None
        self._connections: Connections | None = None
        self.counters = LinkCounters()

    @property
    def endpoint(self) -> str:
        """Address that peers connect to (with the real port after `start`)."""
        return self._endpoint

    async def start(self) -> None:
        """Bind. Raises TransportError: the address is refused or taken, keys are missing."""
        config = self._config
        check_endpoint(self._endpoint, has_keys=config.keys is not None)
        keys = None if config.keys is None else load_server_keys(Path(config.keys))
        self._context = zmq.Context()
        # Before the socket listens: without a gate CURVE would let everybody in.
        self._gate = None if keys is None else Gate(self._context, keys.clients)
        socket = router(self._context, self._endpoint, config, keys)
        self._connections = Connections(socket)
        try:
            socket.bind(self._endpoint)
        except zmq.ZMQError as cause:
            self._connections.close()
            socket.close(linger=0)
            self._close_context()
            advice = ": stop what listens there, or choose another port of link.endpoint"
            raise TransportError(
                f"cannot listen on {self._endpoint}: {cause}"
                f"{advice if cause.errno == zmq.EADDRINUSE else ''}"
            ) from cause
        bound = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._endpoint = bound.rstrip("\0")
        self._pump = Pump(socket, self._on_parts, self._flush, self._on_tick, self.counters)

    async def close(self, timeout_s: float = 0.0) -> None:
        """Close; with `timeout_s` wait up to that long for acknowledgements of what was sent.

        `forget` dead peers before, or their unacknowledged messages use up the time.
        """
        deadline_s = time.monotonic() + timeout_s
        while self._pump is not None and time.monotonic() < deadline_s:
            if not any(entry.channel.num_unacknowledged for entry in self._entries.values()):
                break
            await asyncio.sleep(0.02)
        if self._pump is not None:
            if self._connections is not None:
                self._connections.close()
            for entry in self._entries.values():
                entry.channel.tell_all()
            self._pump.close(linger_ms=0)
            self._pump = None
            self._close_context()
        self._inbox.close()

    async def send(self, peer: str, message: Message) -> None:
        """Queue a message for a peer (by name). Never waits for the network.

        Raises:
            TransportError: no such peer ever said Hello, or the message breaks its record.
        """
        if self._pump is None:
            raise TransportError("the hub is closed or was not started")
        entry = self._entry(peer)
        frames = entry.channel.send(message, time.monotonic())
        if isinstance(message, Welcome):
            entry.welcome = frames

    async def receive(self) -> Received:
        """Next message; safe to cancel.

        A `Hello` is delivered once per incarnation and must be answered with
        ``send(name, Welcome(...))``. Raises TransportError once closed.
        """
        return await self._inbox.take()

    def receive_nowait(self) -> Received | None:
        """Next message that is already here, or None: drain, commit once, then ack all."""
        return self._inbox.take_nowait()

    def peers(self) -> dict[str, PeerState]:
        """State by peer name (dead ones too until `forget`)."""
        now_s = time.monotonic()
        return {
            name: PeerState(
                incarnation=entry.hello.incarnation,
                pid=entry.hello.pid,
                last_seen_s=now_s - entry.last_seen_s,
                unacknowledged=entry.channel.num_unacknowledged,
                oldest_unacknowledged_s=entry.channel.oldest_unacknowledged_s(now_s),
                held=entry.channel.num_held,
            )
            for name, entry in self._entries.items()
        }

    def unacknowledged(self, peer: str) -> list[Message]:
        """Reliable messages to the peer's present incarnation not acknowledged, oldest first."""
        return self._entry(peer).channel.unacknowledged()

    def take_orphans(self, peer: str) -> list[Message]:
        """Unacknowledged messages of earlier incarnations of the peer; returned once."""
        entry = self._entry(peer)
        orphans, entry.orphans = entry.orphans, []
        return orphans

    def forget(self, peer: str) -> None:
        """Drop everything about a peer (it is dead and its work was re-issued)."""
        entry = self._entries.pop(peer, None)
        if entry is not None:
            self._routes.pop(entry.routing_id, None)
            if self._pump is not None:
                entry.channel.tell_all()
                self._flush_entry(self._pump, entry)

    def _close_context(self) -> None:
        if self._gate is not None:
            self._gate.close()
        if self._context is not None:
            self._context.term()

    def _entry(self, peer: str) -> _Entry:
        entry = self._entries.get(peer)
        if entry is None:
            known = ", ".join(sorted(self._entries)) or "nobody"
            raise TransportError(f"peer {peer!r} never connected (connected: {known})")
        return entry

    def _on_parts(self, parts: list[Buffer]) -> None:
        self.counters.frames_in += 1
        routing_id = bytes(parts.pop(0))
        num_bytes = 0
        for part in parts:
            num_bytes += len(part)
        self.counters.bytes_in += num_bytes
        try:
            envelope = decode(parts, self._config.max_message_bytes)
        except FrameError as error:
            self._refuse(error.code, routing_id, str(error))
            if error.code == "schema":
                # The other side cannot read our answer either, but sees whose schema it is.
                self._answer(routing_id, Welcome(error=str(error)))
            return
        message = envelope.message
        if isinstance(message, Hello):
            self._on_hello(routing_id, message)
            return
        if message is not None and not message.to_coordinator:
            kind = type(message).__name__
            self._refuse("direction", routing_id, f"{kind} is sent by the coordinator alone")
            return
        entry = self._routes.get(routing_id)
        if entry is None:
            entry = self._entries.get(routing_id.decode(errors="replace").rpartition("-")[0])
        if entry is None:
            self._refuse("unknown_peer", routing_id, "it never said Hello")
        elif entry.routing_id != routing_id or entry.hello.incarnation != envelope.sender:
            self._refuse("other_incarnation", routing_id, f"present: {entry.hello.incarnation}")
        else:
            entry.last_seen_s = time.monotonic()
            received = entry.channel.deliver(envelope, num_bytes)
            if received is not None:
                self._inbox.put(received)

    def _on_hello(self, routing_id: bytes, hello: Hello) -> None:
        now_s = time.monotonic()
        if routing_id != f"{hello.name}-{hello.incarnation}".encode():
            self._refuse("identity", routing_id, f"it calls itself {hello.name[:64]!r}")
            return
        if hello.schema != SCHEMA:
            self._refuse("schema", routing_id, f"schema {hello.schema}")
            self._answer(routing_id, Welcome(error=f"schema {hello.schema}, expected {SCHEMA}"))
            return
        known = self._entries.get(hello.name)
        if known is not None and known.hello.incarnation == hello.incarnation:
            known.last_seen_s = now_s
            self.counters.control += 1
            if known.welcome is not None:
                known.channel.repeat(known.welcome)
                known.channel.reconnect(now_s)
            return
        if known is None and len(self._entries) >= _MOST_PEERS:
            self._refuse("too_many_peers", routing_id, f"{_MOST_PEERS} peers are connected")
            return
        channel = Channel(self._incarnation, hello.name, self._config, self.counters, self._wake)
        entry = _Entry(hello, routing_id, channel, now_s)
        if known is not None:
            entry.orphans = known.orphans + known.channel.unacknowledged()
            self._routes.pop(known.routing_id, None)
        self._entries[hello.name] = self._routes[routing_id] = entry
        self.counters.received += 1
        self._inbox.put(Received(hello.name, hello, lambda: None))

    def _refuse(self, code: str, routing_id: bytes, text: str) -> None:
        self.counters.refuse(code)
        if self.counters.refused[code] <= 10:
            _LOG.warning("refused a message of %.64r (%s): %s", routing_id, code, text)

    def _fail_handshake(self, reason: str) -> None:
        self.counters.fail_handshake(reason)
        # The gate says more of an unknown key; one that went away says nothing.
        if reason == "protocol" and self.counters.failed_handshakes[reason] <= 10:
            _LOG.warning(
                "refused a connection to %s: no or wrong keys, or not a part of a run",
                self._endpoint,
            )

    def _answer(self, routing_id: bytes, message: Message) -> None:
        assert self._pump is not None, "called from the pump only"
        frames = encode(Envelope(self._incarnation, message), self._config.max_message_bytes)
        with contextlib.suppress(zmq.ZMQError):
            self._pump.hand_over(frames, routing_id)

    def _wake(self) -> None:
        if self._pump is not None:
            self._pump.wake()

    def _on_tick(self) -> None:
        now_s = time.monotonic()
        for news in self._connections.news() if self._connections is not None else ():
            if news == ENDED:
                self.counters.connections_ended += 1
            elif news != CONNECTED:
                self._fail_handshake(news)
        for entry in self._entries.values():
            entry.channel.tick(now_s)

    def _flush(self) -> None:
        if self._pump is not None:
            for entry in self._entries.values():
                self._flush_entry(self._pump, entry)

    def _flush_entry(self, pump: Pump, entry: _Entry) -> None:
        entry.channel.queue_acknowledgements()
        queue = entry.channel.outgoing
        while queue:
            item = queue[0]
            try:
                pump.hand_over(item.frames, entry.routing_id)
            except zmq.Again:
                # Its pipe is full: keep the order and try again at the next tick.
                self.counters.unreachable += 1
                return
            except zmq.ZMQError:
                # No route now: reliable ones come again when they are due or it reconnects.
                self.counters.unreachable += 1
                self.counters.dropped_unreliable += not item.is_reliable
            else:
                self.counters.count_out(item)
            queue.popleft()
