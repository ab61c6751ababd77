"""Generator's and learner's end of the link: one DEALER socket to the coordinator.

Owns: the socket and its `Channel`. `post` may be called from any thread, everything else from the
event loop of `connect`. Guarantees as in `hub`. When the coordinator dies the lifeline ends us.
"""

from __future__ import annotations

from spade_async.config.schema import LinkConfig
from spade_async.transport.counters import LinkCounters
from spade_async.transport.hub import Received
from spade_async.transport.messages import Hello, Message, Welcome


class Peer:
    """See the module; made by `connect`."""

    welcome: Welcome
    counters: LinkCounters

    @classmethod
    async def connect(
        cls, endpoint: str, hello: Hello, config: LinkConfig, timeout_s: float = 20.0
    ) -> Peer:
        """Connect, say Hello and wait for Welcome.

        Raises:
            TransportError: refused (with the coordinator's reason) or no answer in `timeout_s`.
        """
        raise NotImplementedError

    async def send(self, message: Message) -> None:
        """Queue a message. Raises TransportError when it breaks its record or we are closed."""

    def post(self, message: Message) -> None:
        """`send` from any thread (heartbeats); silently ignored once closed."""

    async def receive(self) -> Received:
        """Next message from the coordinator; safe to cancel."""
        raise NotImplementedError

    def receive_nowait(self) -> Received | None:
        """Next message that is already here, or None."""

    @property
    def num_unacknowledged(self) -> int:
        """Reliable messages sent and not acknowledged yet."""
        raise NotImplementedError

    async def flush(self, timeout_s: float) -> bool:
        """Wait until everything reliable is acknowledged; False when time is up."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close with LINGER 0; call `flush` first to lose nothing."""
