"""One conversation: both windows, the queue of frames to send, and what is delivered.

Pure: time is handed in, frames go in and out, so that loss, repetition and disorder are tested
without sockets. Used by `Hub` (one per peer) and `Peer` (one).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from time import thread_time
from typing import NamedTuple

from spade_async.config.schema import LinkConfig
from spade_async.errors import TransportError
from spade_async.transport.codec import Envelope, Frames, decode, encode
from spade_async.transport.counters import LinkCounters, Outgoing
from spade_async.transport.messages import Message
from spade_async.transport.window import Arrival, ReceiveWindow, SendWindow

_MOST_QUEUED = 256
"""Frames that wait for a full pipe before unreliable ones are dropped: the queue must end."""
_MOST_UNTOLD = 64
_MOST_UNTOLD_BYTES = 1 << 23
"""Acknowledgements, or bytes that came, that are told at once; fewer go with the next message, or
with the next tick: a frame of their own costs both ends as much as a message."""
_MOST_REPEATED = 32
"""Repetitions per tick while the connection stands: on a slow line most of what is not acknowledged
is still on its way, and repeating all of it would only make the line slower."""


class Received(NamedTuple):
    """One delivered message. Call `ack` when its effect is durable; a no-op if unreliable."""

    peer: str
    """Name of the sender ("gen-0"; "coordinator" at a `Peer`)."""
    message: Message
    ack: Callable[[], None]
    """Queues the acknowledgement (many are sent in one small frame). Idempotent."""


class Channel:
    """State of the conversation between two incarnations."""

    def __init__(
        self,
        sender: str,
        peer: str,
        config: LinkConfig,
        counters: LinkCounters,
        wake: Callable[[], None],
    ) -> None:
        """`sender` is our incarnation, `peer` the name of the other side.

        `wake` is called when there is something to send.
        """
        self._sender = sender
        self._peer = peer
        self._max_bytes = config.max_message_bytes
        self._counters = counters
        self._wake = wake
        self._sent = SendWindow(config.resend_s)
        self._arrived = ReceiveWindow()
        self._bytes_since_told = 0
        self._tells_now = False
        self.outgoing: deque[Outgoing] = deque()
        """Frames to hand to the socket, oldest first; the owner of the socket pops them."""

    @property
    def num_unacknowledged(self) -> int:
        """Reliable messages sent and not acknowledged."""
        return len(self._sent)

    @property
    def num_held(self) -> int:
        """Messages delivered here and not acknowledged."""
        return self._arrived.num_held

    def oldest_unacknowledged_s(self, now_s: float) -> float:
        """Age of the oldest message not acknowledged."""
        return self._sent.oldest_s(now_s)

    def send(self, message: Message, now_s: float) -> Frames:
        """Queue a message, with whatever there is to acknowledge; its frames.

        Raises:
            TransportError: it breaks its record or is too large; nothing is queued.
        """
        start_s = thread_time()
        seq = self._sent.next_seq if message.reliable else 0
        news = self._arrived.take_news()
        self._bytes_since_told = 0
        try:
            frames = encode(Envelope(self._sender, message, seq, *news), self._max_bytes)
        except TransportError:
            self._arrived.tell_again(news)
            raise
        finally:
            self._counters.busy_s += thread_time() - start_s
        if seq:
            self._sent.keep(frames, now_s)
        elif len(self.outgoing) >= _MOST_QUEUED:
            # The pipe is full: a newer one will tell more than this one.
            self._arrived.tell_again(news)
            self._counters.dropped_unreliable += 1
            return frames
        self.outgoing.append(Outgoing(frames, message.reliable, is_first=True))
        self._wake()
        return frames

    def deliver(self, envelope: Envelope, num_bytes: int = 0) -> Received | None:
        """Take in what came: settle acknowledgements, filter duplicates; a new message or None.

        Args:
            envelope: what came.
            num_bytes: of its frames: the sender waits sooner for the acknowledgement of large ones.
        """
        told = envelope.cumulative, envelope.ranges, envelope.delivered
        if not self._sent.acknowledge(*told):
            self._counters.refuse("ack_of_unsent")
            return None
        message = envelope.message
        if message is None:
            self._counters.control += 1
            return None
        if not envelope.seq:
            self._counters.received += 1
            return Received(self._peer, message, _nothing)
        arrival = self._arrived.arrive(envelope.seq)
        if arrival is Arrival.NEW:
            self._counters.received += 1
            self._bytes_since_told += num_bytes
            return Received(self._peer, message, partial(self._acknowledge, envelope.seq))
        if arrival is Arrival.DUPLICATE:
            self._counters.duplicates += 1
            if self._arrived.has_news:
                self._tells_now = True
                self._wake()
        else:
            self._counters.refuse("too_far_ahead")
        return None

    def repeat(self, frames: Frames) -> None:
        """Queue frames of an unreliable message again (Welcome)."""
        self.outgoing.append(Outgoing(frames, is_reliable=False, is_first=False))
        self._wake()

    def tick(self, now_s: float) -> None:
        """Queue what is due to be sent again; tell that what is held here came."""
        self._arrived.tell_delivered()
        if self.outgoing:
            # The pipe is full: try again; repeating would only make the queue longer.
            self._wake()
            return
        due = self._sent.due(now_s, _MOST_REPEATED)
        self.outgoing.extend(Outgoing(frames, is_reliable=True, is_first=False) for frames in due)
        self._tells_now |= self._arrived.has_news
        if due or self._tells_now:
            self._wake()

    def reconnect(self, now_s: float) -> None:
        """The connection is new: send everything again that is not acknowledged."""
        self.outgoing = deque(item for item in self.outgoing if not item.is_reliable)
        self._sent.rewind(now_s)
        # Not through `tick`: unreliable frames in the queue are no reason to wait.
        due = self._sent.due(now_s)
        self.outgoing.extend(Outgoing(frames, is_reliable=True, is_first=False) for frames in due)
        self._wake()

    def tell_all(self) -> None:
        """Let no acknowledgement wait any longer: we close."""
        self._tells_now = True

    def queue_acknowledgements(self) -> None:
        """Queue small frames for acknowledgements that no message has taken along.

        They wait for one up to a tick, unless they are many or of much. Those of a full pipe wait
        too: one later frame then tells them all.
        """
        if not (self._tells_now or self._is_much_untold):
            return
        self._tells_now = False
        self._bytes_since_told = 0
        while self._arrived.has_news and len(self.outgoing) < _MOST_QUEUED:
            envelope = Envelope(self._sender, None, 0, *self._arrived.take_news())
            frames = encode(envelope, self._max_bytes)
            self.outgoing.append(Outgoing(frames, is_reliable=False, is_first=False))

    def unacknowledged(self) -> list[Message]:
        """Reliable messages not acknowledged, oldest first."""
        return [message_of(frames, self._max_bytes) for frames in self._sent.frames()]

    @property
    def _is_much_untold(self) -> bool:
        return self._arrived.num_to_tell >= _MOST_UNTOLD or (
            self._bytes_since_told >= _MOST_UNTOLD_BYTES and self._arrived.has_news
        )

    def _acknowledge(self, seq: int) -> None:
        if self._arrived.acknowledge(seq) and self._is_much_untold:
            self._wake()


def message_of(frames: Frames, max_bytes: int) -> Message:
    """The message in frames that we encoded ourselves."""
    message = decode(frames, max_bytes).message
    assert message is not None, "only messages are kept"
    return message


def _nothing() -> None:
    """Acknowledge an unreliable message."""
