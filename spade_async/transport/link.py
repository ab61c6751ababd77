"""The link between the processes of one run: import the two ends from here."""

from __future__ import annotations

from spade_async.transport.channel import Received
from spade_async.transport.counters import LinkCounters
from spade_async.transport.hub import Hub, PeerState
from spade_async.transport.peer import Peer

__all__ = ["Hub", "LinkCounters", "Peer", "PeerState", "Received"]
