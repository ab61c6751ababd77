"""The two sockets of the link, with every option that matters, and what their connections tell.

Caps: ZeroMQ itself refuses a frame above twice `link.max_message_bytes` before it allocates (and
ends that connection); `codec` refuses by name what is between. Half-dead connections (a cable
pulled, a machine gone) are found by ZeroMQ's heartbeats and made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import zmq
import zmq.utils.monitor

from spade_async.config.schema import LinkConfig
from spade_async.transport.gate import DOMAIN
from spade_async.transport.keys import ServerKeys, load_client_keys
from spade_async.transport.memory import keep_freed_blocks

HIGH_WATER = 10_000
"""Messages that may queue in a socket per connection before we keep them ourselves."""
_HEARTBEAT_MS = 2_000
_HEARTBEAT_TIMEOUT_MS = 20_000
"""Answered by ZeroMQ's own thread, so a busy model does not look dead; a stopped process may."""
_RECONNECT_MS = 50
_RECONNECT_MOST_MS = 1_000

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]

_FAILURES = {
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH): "key",
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL): "protocol",
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): "gone",
}
CONNECTED, ENDED = "connected", "ended"


def router(context: Context, endpoint: str, config: LinkConfig, keys: ServerKeys | None) -> Socket:
    """The coordinator's socket, not bound yet. With keys the context needs a `Gate` first."""
    socket = context.socket(zmq.ROUTER)
    _common(socket, endpoint, config)
    # A full pipe or an unknown peer is an error that we see, never a message dropped in silence.
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    # A connection of the same incarnation replaces its half-dead predecessor.
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    if keys is not None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
        socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    return socket


def dealer(context: Context, endpoint: str, config: LinkConfig, routing_id: bytes) -> Socket:
    """A generator's or learner's socket, not connected yet.

    Raises:
        TransportError: `link.keys` names keys that are missing or malformed.
    """
    keys = None if config.keys is None else load_client_keys(Path(config.keys))
    socket = context.socket(zmq.DEALER)
    _common(socket, endpoint, config)
    socket.setsockopt(zmq.ROUTING_ID, routing_id)
    socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MOST_MS)
    if keys is not None:
        socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
    return socket


def _common(socket: Socket, endpoint: str, config: LinkConfig) -> None:
    keep_freed_blocks()
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IPV6, int("[" in endpoint))
    socket.setsockopt(zmq.MAXMSGSIZE, 2 * config.max_message_bytes)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, _HEARTBEAT_TIMEOUT_MS)


class Connections:
    """What became of a socket's connections since it was last asked."""

    def __init__(self, socket: Socket) -> None:
        """Watch a socket; before it binds or connects."""
        self._socket = socket
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        for failure in _FAILURES:
            events |= failure
        self._monitor = socket.get_monitor_socket(events)

    def news(self) -> Iterator[str]:
        """`CONNECTED`, `ENDED`, or why a connection was not made ("key", "protocol", "gone")."""
        # Asked ten times a second: a poll costs ten times as much.
        while int(self._monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            event = zmq.utils.monitor.recv_monitor_message(self._monitor, zmq.NOBLOCK)
            kind = int(event["event"])
            if kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                yield CONNECTED
            elif kind == zmq.EVENT_DISCONNECTED:
                yield ENDED
            else:
                yield _FAILURES.get(kind, "protocol")

    def close(self) -> None:
        """Stop watching; before the socket is closed."""
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
