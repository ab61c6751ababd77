"""Generator's and learner's end of the link: one DEALER socket to the coordinator.

Owns: the socket and its `Channel`. `post` may be called from any thread, everything else from the
event loop of `connect`. Guarantees as in `hub`. When the coordinator dies the lifeline ends us.
The loop must stay free: run the model in a thread, or acknowledgements and heartbeats wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace

import zmq

from spade_async.config.schema import LinkConfig
from spade_async.errors import TransportError
from spade_async.transport.block import Buffer
from spade_async.transport.channel import Channel, Received
from spade_async.transport.codec import FrameError, decode
from spade_async.transport.counters import LinkCounters
from spade_async.transport.endpoint import check_endpoint
from spade_async.transport.inbox import Inbox
from spade_async.transport.messages import Heartbeat, Hello, Message, Welcome
from spade_async.transport.pump import Pump
from spade_async.transport.sockets import CONNECTED, ENDED, Connections, Context, dealer

_LOG = logging.getLogger(__name__)
_HELLO_AGAIN_S = 1.0
_MOST_FAILURES = 4
"""Connections in a row that end in the handshake before we say that the keys do not fit."""
_LINGER_MS = 200
"""Lets the last acknowledgements out; everything else was flushed before."""


class Peer:
    """See the module; made by `connect`."""

    def __init__(self, endpoint: str, hello: Hello, config: LinkConfig) -> None:
        """Use `connect`."""
        check_endpoint(endpoint, has_keys=config.keys is not None)
        self.welcome = Welcome(error="not welcomed yet")
        self.counters = LinkCounters()
        self._endpoint = endpoint
        self._hello = hello
        self._max_bytes = config.max_message_bytes
        self._loop = asyncio.get_running_loop()
        self._hub_incarnation: str | None = None
        self._welcomed: asyncio.Future[Welcome] = self._loop.create_future()
        self._settled = asyncio.Event()
        """Something may have been acknowledged."""
        self._inbox = Inbox("link to the coordinator")
        self._channel = Channel(hello.incarnation, "coordinator", config, self.counters, self._wake)
        self._has_keys = config.keys is not None
        self._context: Context = zmq.Context()
        routing_id = f"{hello.name}-{hello.incarnation}".encode()
        try:
            socket = dealer(self._context, endpoint, config, routing_id)
        except TransportError:
            self._context.term()
            raise
        self._connections = Connections(socket)
        self._num_connections = self._num_failures = 0
        socket.connect(endpoint)
        self._pump: Pump | None = Pump(
            socket, self._on_parts, self._flush, self._on_tick, self.counters
        )

    @classmethod
    async def connect(
        cls, endpoint: str, hello: Hello, config: LinkConfig, timeout_s: float = 20.0
    ) -> Peer:
        """Connect, say Hello and wait for Welcome.

        Raises:
            TransportError: refused (with the coordinator's reason), keys that are missing,
                malformed or not those of the coordinator (within seconds), or no answer in time.
        """
        peer = cls(endpoint, hello, config)
        try:
            await peer._handshake(timeout_s)
        except BaseException:
            await peer.close()
            raise
        return peer

    async def send(self, message: Message) -> None:
        """Queue a message. Raises TransportError when it breaks its record or we are closed."""
        if self._pump is None:
            raise TransportError("the link to the coordinator is closed")
        self._channel.send(message, time.monotonic())

    def post(self, message: Message) -> None:
        """`send` from any thread (heartbeats); silently ignored once closed.

        A `Heartbeat` takes the figures of this end along (`figures`).
        """
        # The loop is closed at the very end of a process: nobody is left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._post, message)

    async def receive(self) -> Received:
        """Next message from the coordinator; safe to cancel. TransportError once closed."""
        return await self._inbox.take()

    def receive_nowait(self) -> Received | None:
        """Next message that is already here, or None."""
        return self._inbox.take_nowait()

    @property
    def num_unacknowledged(self) -> int:
        """Reliable messages sent and not acknowledged yet."""
        return self._channel.num_unacknowledged

    def figures(self) -> dict[str, float]:
        """Counters of this end for a heartbeat, e.g. {"link_resent": 0.0, "link_busy_s": 0.2}."""
        found = {f"link_{name}": value for name, value in self.counters.as_metrics().items()}
        found["link_unacknowledged"] = float(self._channel.num_unacknowledged)
        oldest_s = self._channel.oldest_unacknowledged_s(time.monotonic())
        found["link_oldest_unacknowledged_s"] = oldest_s
        return found

    async def flush(self, timeout_s: float) -> bool:
        """Wait until everything reliable is acknowledged; False when time is up."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_below(1)
        except TimeoutError:
            pass
        return not self._channel.num_unacknowledged

    async def wait_below(self, messages: int) -> None:
        """Wait until fewer than that many reliable messages are not acknowledged, or we close."""
        while self._channel.num_unacknowledged >= messages and self._pump is not None:
            self._settled.clear()
            await self._settled.wait()

    async def close(self) -> None:
        """Close; call `flush` first to lose nothing (what is left counts as lost). Idempotent."""
        if self._pump is None:
            return
        self.counters.lost += self._channel.num_unacknowledged
        pump = self._pump
        self._channel.tell_all()
        self._connections.close()
        pump.close(linger_ms=_LINGER_MS)
        self._pump = None
        self._context.term()
        self._settled.set()
        self._inbox.close()

    async def _handshake(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TransportError(
                    f"no answer from the coordinator at {self._endpoint} in {timeout_s:g} s: "
                    "see its log"
                )
            self._channel.send(self._hello, time.monotonic())
            done, _ = await asyncio.wait([self._welcomed], timeout=min(_HELLO_AGAIN_S, left_s))
            if done:
                break
        self.welcome = self._welcomed.result()
        if self.welcome.error is not None:
            raise TransportError(
                f"the coordinator refused {self._hello.name}: {self.welcome.error}"
            )

    def _post(self, message: Message) -> None:
        if self._pump is not None:
            if isinstance(message, Heartbeat):
                message = replace(message, metrics=message.metrics | self.figures())
            try:
                self._channel.send(message, time.monotonic())
            except TransportError:
                _LOG.exception("a posted message was not sent")

    def _on_parts(self, parts: list[Buffer]) -> None:
        self.counters.frames_in += 1
        num_bytes = sum(map(len, parts))
        self.counters.bytes_in += num_bytes
        try:
            envelope = decode(parts, self._max_bytes)
        except FrameError as error:
            self._refuse(error.code, str(error))
            if error.code == "schema" and not self._welcomed.done():
                self._welcomed.set_result(Welcome(error=str(error)))
            return
        message = envelope.message
        if message is not None and not message.from_coordinator:
            self._refuse("direction", f"{type(message).__name__} is never sent by the coordinator")
            return
        if isinstance(message, Welcome):
            self.counters.control += 1
            if not self._welcomed.done():
                self._hub_incarnation = envelope.sender
                self._welcomed.set_result(message)
            return
        if envelope.sender != self._hub_incarnation:
            self._refuse("other_incarnation", f"coordinator {envelope.sender[:64]!r}")
            return
        received = self._channel.deliver(envelope, num_bytes)
        self._settled.set()
        if received is not None:
            self._inbox.put(received)

    def _refuse(self, code: str, text: str) -> None:
        self.counters.refuse(code)
        if self.counters.refused[code] <= 10:
            _LOG.warning("refused a message of the coordinator (%s): %s", code, text)

    def _wake(self) -> None:
        # The channel is made before the pump.
        if getattr(self, "_pump", None) is not None:
            self._pump.wake()  # type: ignore[union-attr]  # checked in the line above

    def _on_tick(self) -> None:
        self._watch_connection()
        self._channel.tick(time.monotonic())

    def _watch_connection(self) -> None:
        """After a reconnection say Hello again and repeat what is not acknowledged."""
        for news in self._connections.news():
            if news == ENDED:
                self.counters.connections_ended += 1
            elif news != CONNECTED:
                self._on_failed_handshake(news)
            else:
                self._num_failures = 0
                self._num_connections += 1
                if self._num_connections > 1:
                    _LOG.info("the link to the coordinator was made again")
                    now_s = time.monotonic()
                    self._channel.send(self._hello, now_s)
                    self._channel.reconnect(now_s)

    def _on_failed_handshake(self, reason: str) -> None:
        self.counters.fail_handshake(reason)
        self._num_failures += 1
        is_sure = reason != "gone" or self._num_failures >= _MOST_FAILURES
        if not is_sure or self._welcomed.done():
            return
        if reason == "key":
            why = "it does not know our key: add the public key of client.key to its server.key"
        elif not self._has_keys:
            why = "it asks for keys: set link.keys to the folder that holds client.key"
        elif reason == "protocol":
            why = "it has no keys: set link.keys on its side, or leave it out on both"
        else:
            why = "the server key in client.key is not its own: copy client.key from its machine"
        # Raised by whoever waits in `connect`.
        self._welcomed.set_exception(
            TransportError(f"the coordinator at {self._endpoint} lets us not in: {why}")
        )

    def _flush(self) -> None:
        pump = self._pump
        if pump is None:
            return
        self._channel.queue_acknowledgements()
        queue = self._channel.outgoing
        while queue:
            try:
                pump.hand_over(queue[0].frames)
            except zmq.Again:
                self.counters.unreachable += 1
                return
            self.counters.count_out(queue.popleft())
