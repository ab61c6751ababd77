"""Lets in connections whose CURVE key is known, and nobody else.

ZeroMQ asks over a socket of its own inside the context (RFC 27, ZAP) before a connection can send
its first message. Without a gate CURVE hides what is said but lets everybody in.
"""

from __future__ import annotations

import logging
from collections.abc import Set

import zmq
from zmq.utils import z85

from spade_async.transport.block import Buffer
from spade_async.transport.counters import LinkCounters
from spade_async.transport.pump import Pump

_LOG = logging.getLogger(__name__)
_ADDRESS = "inproc://zeromq.zap.01"
DOMAIN = b"spade"
"""Name under which the hub's socket asks."""


class Gate:
    """Answers ZAP requests of one context from the event loop; make it before the hub binds."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], clients: Set[bytes]) -> None:
        """`clients`: public keys (Z85) that are let in."""
        self._clients = clients
        self.num_refused = 0
        socket = context.socket(zmq.REP)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(_ADDRESS)
        self._socket = socket
        self._pump = Pump(
            socket, self._on_request, _nothing, _nothing, LinkCounters(), most_parts=7
        )

    def close(self) -> None:
        """Let in nobody from now on. Idempotent."""
        self._pump.close(linger_ms=0)

    def _on_request(self, parts: list[Buffer]) -> None:
        # version, request id, domain, address, identity, mechanism, the 32 bytes of the key
        request_id, address = bytes(parts[1]), bytes(parts[3]).decode(errors="replace")
        key = z85.encode(bytes(parts[6])) if len(parts) == 7 and len(parts[6]) == 32 else b""
        if bytes(parts[0]) == b"1.0" and bytes(parts[5]) == b"CURVE" and key in self._clients:
            verdict = [b"200", b"OK"]
        else:
            verdict = [b"400", b"unknown key"]
            self.num_refused += 1
            if self.num_refused <= 10:
                _LOG.warning(
                    "refused a connection from %.64s: its public key %s is not among the clients "
                    "of server.key",
                    address,
                    key.decode(),
                )
        self._socket.send_multipart([b"1.0", request_id, *verdict, b"", b""])


def _nothing() -> None:
    """There is nothing to send of our own accord."""
