"""Sequence numbers of one direction: what was sent and not acknowledged, what came and was not.

Pure, no sockets and no clock of its own. A message is delivered once: it is *held* from delivery to
`acknowledge` (a repetition is dropped), and *acknowledged* after it (a repetition is acknowledged
again, because the first acknowledgement may be lost).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spade_async.transport.codec import MAX_RANGES, Frames

_MAX_AHEAD = 1 << 16
"""A sequence number further ahead than this is refused: it would only fill our memory."""
_MAX_BACKOFF = 12.0
"""Largest multiple of the first resend delay."""


@dataclass(slots=True)
class Pending:
    """One reliable message on its way."""

    frames: Frames
    first_s: float
    due_s: float
    """When it is sent again."""
    delay_s: float
    """Present delay; doubles with each sending, as the receiver may be busy with it."""


class SendWindow:
    """Reliable messages sent and not acknowledged, in order."""

    def __init__(self, resend_s: float) -> None:
        self._resend_s = resend_s
        self._pending: dict[int, Pending] = {}
        self._last = 0
        self._acknowledged = 0
        self._delivered = 0
        self._next_due_s = float("inf")

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def next_seq(self) -> int:
        """Number of the next message; taken by `keep`."""
        return self._last + 1

    def keep(self, frames: Frames, now_s: float) -> None:
        """Keep the message with `next_seq` until it is acknowledged."""
        self._last += 1
        due_s = now_s + self._resend_s
        self._pending[self._last] = Pending(frames, now_s, due_s, self._resend_s)
        if due_s < self._next_due_s:
            self._next_due_s = due_s

    def acknowledge(
        self, cumulative: int, ranges: Sequence[tuple[int, int]], delivered: int = 0
    ) -> bool:
        """Forget what the receiver acknowledged; False when it names what was never sent.

        What it only holds (up to `delivered`) stays. It is sent again as rarely as anything is,
        because all that can be missing is the acknowledgement, and after `rewind`.
        """
        if not ranges and cumulative <= self._acknowledged and delivered <= self._delivered:
            # Most frames tell nothing new.
            return True
        if max([cumulative, delivered, *(last for _, last in ranges)]) > self._last:
            return False
        for seq in range(self._delivered + 1, delivered + 1):
            if (held := self._pending.get(seq)) is not None:
                held.delay_s = _MAX_BACKOFF * self._resend_s
                held.due_s = max(held.due_s, held.first_s + held.delay_s)
        self._delivered = max(self._delivered, delivered)
        self._acknowledged = max(self._acknowledged, cumulative)
        pending = self._pending
        while pending and (oldest := next(iter(pending))) <= cumulative:
            del pending[oldest]
        for first, last in ranges:
            if last - first > len(pending):
                for seq in [seq for seq in pending if first <= seq <= last]:
                    del pending[seq]
            else:
                for seq in range(first, last + 1):
                    pending.pop(seq, None)
        return True

    def due(self, now_s: float, most: int | None = None) -> list[Frames]:
        """Frames to send again now, oldest first; each call pushes their next time back.

        Args:
            now_s: the time.
            most: no more than that many; the others stay due.
        """
        if now_s < self._next_due_s:
            return []
        frames: list[Frames] = []
        for pending in self._pending.values():
            if len(frames) == most:
                break
            if pending.due_s <= now_s:
                frames.append(pending.frames)
                pending.delay_s = min(2.0 * pending.delay_s, _MAX_BACKOFF * self._resend_s)
                pending.due_s = now_s + pending.delay_s
        self._next_due_s = min((p.due_s for p in self._pending.values()), default=float("inf"))
        return frames

    def rewind(self, now_s: float) -> None:
        """Make everything due now (the connection is new; what was under way is gone)."""
        for pending in self._pending.values():
            pending.due_s, pending.delay_s = now_s, self._resend_s
        self._next_due_s = now_s
        self._delivered = next(iter(self._pending), self._last + 1) - 1

    def frames(self) -> list[Frames]:
        """Frames of everything not acknowledged, oldest first."""
        return [pending.frames for pending in self._pending.values()]

    def oldest_s(self, now_s: float) -> float:
        """Age of the oldest, 0 when there is none."""
        first = next(iter(self._pending.values()), None)
        return 0.0 if first is None else now_s - first.first_s


class News(NamedTuple):
    """What one frame tells of the messages that came."""

    cumulative: int
    """Every message up to this one is acknowledged."""
    ranges: tuple[tuple[int, int], ...]
    """Further acknowledged (first, last) pairs."""
    delivered: int
    """Every message up to this one came: it need not come again while the connection stands."""


class Arrival(enum.Enum):
    """What a sequence number that came is."""

    NEW = "new"
    DUPLICATE = "duplicate"
    TOO_FAR = "too_far"


class ReceiveWindow:
    """Sequence numbers that came, and the acknowledgements that are to be told."""

    def __init__(self) -> None:
        self._cumulative = 0
        self._delivered = 0
        self._told_delivered = 0
        self._acknowledged: set[int] = set()
        self._held: set[int] = set()
        self._to_tell: set[int] = set()
        self._is_cumulative_news = False

    @property
    def num_held(self) -> int:
        """Delivered and not acknowledged."""
        return len(self._held)

    @property
    def num_to_tell(self) -> int:
        """Acknowledgements that were not told yet."""
        return len(self._to_tell)

    @property
    def has_news(self) -> bool:
        """Whether there is an acknowledgement to tell."""
        return self._is_cumulative_news or bool(self._to_tell)

    def arrive(self, seq: int) -> Arrival:
        """Note a sequence number; NEW ones are delivered and held."""
        if seq <= self._cumulative:
            self._is_cumulative_news = True
            return Arrival.DUPLICATE
        if seq in self._acknowledged:
            self._to_tell.add(seq)
            return Arrival.DUPLICATE
        if seq in self._held:
            # The sender does not know that it came; above a gap it cannot be told.
            self._is_cumulative_news |= seq <= self._delivered
            return Arrival.DUPLICATE
        if seq > self._cumulative + _MAX_AHEAD:
            return Arrival.TOO_FAR
        self._held.add(seq)
        if seq == self._delivered + 1:
            # Nothing else can close the gap above what came without one.
            while seq in self._held or seq in self._acknowledged:
                self._delivered = seq
                seq += 1
        return Arrival.NEW

    def acknowledge(self, seq: int) -> bool:
        """The effect of a held message is durable; False when it was acknowledged before."""
        if seq not in self._held:
            return False
        self._held.remove(seq)
        self._to_tell.add(seq)
        if seq != self._cumulative + 1:
            self._acknowledged.add(seq)
            return True
        self._is_cumulative_news = True
        self._cumulative = seq
        while self._cumulative + 1 in self._acknowledged:
            self._cumulative += 1
            self._acknowledged.remove(self._cumulative)
        return True

    def tell_delivered(self) -> None:
        """Make it news that messages came which are still held: their effect takes its time."""
        if self._delivered > max(self._told_delivered, self._cumulative):
            self._is_cumulative_news = True

    def take_news(self) -> News:
        """What is to be told now; what does not fit stays for the next frame."""
        self._is_cumulative_news = False
        self._told_delivered = self._delivered
        if not self._to_tell:
            return News(self._cumulative, (), self._delivered)
        ranges: list[tuple[int, int]] = []
        told: list[int] = []
        for seq in sorted(self._to_tell):
            if seq > self._cumulative:
                if ranges and ranges[-1][1] + 1 == seq:
                    ranges[-1] = (ranges[-1][0], seq)
                elif len(ranges) < MAX_RANGES:
                    ranges.append((seq, seq))
                else:
                    break
            told.append(seq)
        self._to_tell.difference_update(told)
        return News(self._cumulative, tuple(ranges), self._delivered)

    def tell_again(self, news: News) -> None:
        """Take back the last `take_news`: its frame was not sent."""
        self._is_cumulative_news = True
        for first, last in news.ranges:
            self._to_tell.update(range(first, last + 1))
