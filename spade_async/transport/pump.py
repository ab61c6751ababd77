"""The one place that touches a ZeroMQ socket: sends and receives from callbacks of one event loop.

Nothing here is awaited, so no receive can be cancelled half-way (cancelled receives lose messages).
ZeroMQ's descriptor is edge-triggered: it is only a hint, so after every round the socket itself is
asked whether there is more. A ZeroMQ socket belongs to one thread: waking the pump from another one
raises at once (`Peer.post` is the way in from there).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import get_ident
from time import thread_time

import zmq

from spade_async.errors import TransportError
from spade_async.transport.block import Buffer
from spade_async.transport.codec import Frames
from spade_async.transport.counters import LinkCounters

_ROUND = 128
"""Messages taken before other callbacks of the loop get their turn."""
_ROUND_BYTES = 1 << 20
"""Or bytes: what is used and freed at once is still in the cache, and its memory is used again."""
_COPY_BYTES = 1 << 16
"""Smaller frames are copied out of ZeroMQ's memory; larger ones are read where they lie."""
_MOST_ASKED = 3
"""Messages of a round before which the socket is asked whether there is one. To ask costs half of
what it costs to be told that there is none, once, by an exception."""
# Whole numbers: flags of zmq's own types take a microsecond to combine.
_IN = int(zmq.POLLIN)
_NOBLOCK = int(zmq.NOBLOCK)
_NOBLOCK_AND_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS = zmq.EVENTS
_TICK_S = 0.1
_TICKS_PER_LOOK = 5


class Pump:
    """Owner of one socket in one event loop."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        on_parts: Callable[[list[Buffer]], None],
        flush: Callable[[], None],
        on_tick: Callable[[], None],
        counters: LinkCounters,
        most_parts: int = 4,
    ) -> None:
        """Take the socket over. None of the three callbacks may raise.

        `on_parts` gets each incoming message, `flush` hands everything queued to the socket,
        `on_tick` comes ten times a second. Of a message with more than `most_parts` parts the rest
        is dropped unseen; 4 is one more than any message of the link has, routing id included.
        """
        self._most_parts = most_parts
        self.socket = socket
        self._counters = counters
        self._thread = get_ident()
        self._on_parts = on_parts
        self._flush = flush
        self._on_tick = on_tick
        self._loop = asyncio.get_running_loop()
        self._fd = int(socket.getsockopt(zmq.FD))
        self._num_ticks = 0
        self._is_scheduled = False
        self._is_closed = False
        self._loop.add_reader(self._fd, self._round)
        self._timer = self._loop.call_later(_TICK_S, self._tick)
        self.wake()

    def wake(self) -> None:
        """Run a round soon; cheap to call often.

        Raises:
            TransportError: called from a thread that is not the event loop's.
        """
        if get_ident() != self._thread:
            raise TransportError(
                "the link was used from a second thread: only Peer.post may be called from there"
            )
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._loop.call_soon(self._round)

    def close(self, linger_ms: int) -> None:
        """Hand over what is queued and close the socket. Idempotent."""
        if self._is_closed:
            return
        self._flush()
        self._is_closed = True
        self._timer.cancel()
        self._loop.remove_reader(self._fd)
        self.socket.close(linger=linger_ms)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_TICK_S, self._tick)
        self._on_tick()
        self._num_ticks += 1
        if self._num_ticks % _TICKS_PER_LOOK == 0:
            # The descriptor is a hint; should one ever be missed, this is how long it lasts.
            self.wake()

    def _round(self) -> None:
        # Called by the descriptor too: a round that was to come will find nothing to do.
        self._is_scheduled = False
        if self._is_closed:
            return
        start_s = thread_time()
        self._flush()
        counters, most_bytes = self._counters, self._counters.bytes_in + _ROUND_BYTES
        # Flushing and receiving can both swallow the edge of the descriptor; asking is exact, and
        # so is a receive that finds nothing.
        for taken in range(_ROUND + 1):
            if taken < _MOST_ASKED and not int(self.socket.getsockopt(_EVENTS)) & _IN:
                break
            if taken == _ROUND or counters.bytes_in >= most_bytes:
                self.wake()
                break
            parts = self._take()
            if parts is None:
                break
            self._on_parts(parts)
            # Not held while the next one comes: see `_ROUND_BYTES`.
            del parts
        counters.busy_s += thread_time() - start_s

    def _take(self) -> list[Buffer] | None:
        """One message that is here: ZeroMQ delivers all of its parts or none."""
        socket = self.socket
        parts: list[Buffer] = []
        has_more = True
        while has_more:
            try:
                # Not copied by ZeroMQ: such a frame says at once whether more follow.
                frame = socket.recv(_NOBLOCK, copy=False)
            except zmq.Again:
                return None
            has_more = frame.more
            if len(parts) < self._most_parts:
                parts.append(frame.bytes if len(frame) < _COPY_BYTES else frame.buffer)
        return parts

    def hand_over(self, frames: Frames, routing_id: bytes | None = None) -> None:
        """Give a message to the socket; what the first part is let through with, all are.

        Raises:
            zmq.Again: its pipe is full.
            zmq.ZMQError: there is no route.
        """
        socket = self.socket
        if routing_id is not None:
            socket.send(routing_id, _NOBLOCK_AND_MORE)
        header, block = frames
        socket.send(header, _NOBLOCK_AND_MORE)
        socket.send(block, _NOBLOCK, copy=len(block) < _COPY_BYTES)
