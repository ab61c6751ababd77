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

import zmq
import zmq.utils.monitor

from spade_async.config.schema import LinkConfig
from spade_async.errors import TransportError
from spade_async.transport.channel import Channel, Received
from spade_async.transport.codec import FrameError, decode
from spade_async.transport.counters import LinkCounters
from spade_async.transport.endpoint import check_endpoint
from spade_async.transport.inbox import Inbox
from spade_async.transport.messages import Hello, Message, Welcome
from spade_async.transport.pump import Pump

_LOG = logging.getLogger(__name__)
_HELLO_AGAIN_S = 1.0
_HIGH_WATER = 10_000
_LINGER_MS = 200
"""Lets the last acknowledgements out; everything else was flushed before."""


class Peer:
    """See the module; made by `connect`."""

    def __init__(self, endpoint: str, hello: Hello, config: LinkConfig) -> None:
        """Use `connect`."""
        check_endpoint(endpoint)
        self.welcome = Welcome(error="not welcomed yet")
        self.counters = LinkCounters()
        self._endpoint = endpoint
        self._hello = hello
        self._max_bytes = config.max_message_bytes
        self._loop = asyncio.get_running_loop()
        self._hub_incarnation: str | None = None
        self._welcomed: asyncio.Future[Welcome] = self._loop.create_future()
        self._inbox = Inbox("link to the coordinator")
        self._channel = Channel(hello.incarnation, "coordinator", config, self.counters, self._wake)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.ROUTING_ID, f"{hello.name}-{hello.incarnation}".encode())
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, config.max_message_bytes)
        socket.setsockopt(zmq.SNDHWM, _HIGH_WATER)
        socket.setsockopt(zmq.RCVHWM, _HIGH_WATER)
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        self._monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._num_connections = 0
        socket.connect(endpoint)
        self._pump: Pump | None = Pump(socket, self._on_parts, self._flush, self._on_tick)

    @classmethod
    async def connect(
        cls, endpoint: str, hello: Hello, config: LinkConfig, timeout_s: float = 20.0
    ) -> Peer:
        """Connect, say Hello and wait for Welcome.

        Raises:
            TransportError: refused (with the coordinator's reason) or no answer in `timeout_s`.
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
        """`send` from any thread (heartbeats); silently ignored once closed."""
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

    async def flush(self, timeout_s: float) -> bool:
        """Wait until everything reliable is acknowledged; False when time is up."""
        deadline_s = time.monotonic() + timeout_s
        while self._channel.num_unacknowledged:
            if time.monotonic() >= deadline_s or self._pump is None:
                return False
            await asyncio.sleep(0.01)
        return True

    async def close(self) -> None:
        """Close; call `flush` first to lose nothing (what is left counts as lost). Idempotent."""
        if self._pump is None:
            return
        self.counters.lost += self._channel.num_unacknowledged
        pump = self._pump
        pump.socket.disable_monitor()
        pump.close(linger_ms=_LINGER_MS)
        self._pump = None
        self._monitor.close(linger=0)
        self._context.term()
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
            try:
                self._channel.send(message, time.monotonic())
            except TransportError:
                _LOG.exception("a posted message was not sent")

    def _on_parts(self, parts: list[bytes]) -> None:
        self.counters.bytes_in += sum(map(len, parts))
        try:
            envelope = decode(parts, self._max_bytes)
        except FrameError as error:
            self._refuse(error.code, str(error))
            if error.code == "schema" and not self._welcomed.done():
                self._welcomed.set_result(Welcome(error=str(error)))
            return
        if isinstance(envelope.message, Welcome):
            if not self._welcomed.done():
                self._hub_incarnation = envelope.sender
                self._welcomed.set_result(envelope.message)
            return
        if envelope.sender != self._hub_incarnation:
            self._refuse("other_incarnation", f"coordinator {envelope.sender[:64]!r}")
            return
        received = self._channel.deliver(envelope)
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
        while self._monitor.poll(0):
            zmq.utils.monitor.recv_monitor_message(self._monitor, zmq.NOBLOCK)
            self._num_connections += 1
            if self._num_connections > 1:
                _LOG.info("the link to the coordinator was made again")
                now_s = time.monotonic()
                self._channel.send(self._hello, now_s)
                self._channel.reconnect(now_s)

    def _flush(self) -> None:
        pump = self._pump
        if pump is None:
            return
        self._channel.queue_acknowledgements()
        queue = self._channel.outgoing
        while queue:
            try:
                pump.socket.send_multipart(queue[0].frames, zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self.counters.unreachable += 1
                return
            self.counters.count_out(queue.popleft())
