"""Frames between host and child, and the reader that never trusts them.

A frame is a little-endian u32 length and that many bytes. Request: u32 sequence, u8 kind, body.
Reply: u32 sequence, u8 outcome, u8 flags, f64 reward, u32 length of the observation, the
observation, then the detail to the end of the frame. The native core speaks the same frames.
"""

from __future__ import annotations

import math
import struct

from spade_async.jail_backends.answer import CODES, Answer

LOAD, RESET, STEP, HINT, PING = 0, 1, 2, 3, 5
REPLY_OVERHEAD = 18
"""Bytes of a reply besides its texts; the cap of a reply is on the texts."""
DETAIL_BYTES = 4096
"""Longest detail a child may send."""

_REQUEST = struct.Struct("<IIB")
_REPLY = struct.Struct("<IBBdI")
_LENGTH = struct.Struct("<I")


class Bad(Exception):
    """What arrived is not a frame of the protocol, or not one that may come now."""


class TooLong(Bad):
    """A frame above the cap was announced; nothing was allocated for it."""

    def __init__(self, length: int) -> None:
        super().__init__(f"a frame of {length} bytes was announced")
        self.length = length


def encode_request(sequence: int, kind: int, body: bytes) -> bytes:
    """A request as one buffer."""
    return _REQUEST.pack(5 + len(body), sequence, kind) + body


def load_body(source: str, seed_hex: str) -> bytes:
    """Body of a load: the seed in hexadecimal, a newline, the source."""
    return f"{seed_hex}\n{source}".encode()


def decode_reply(frame: bytes, sequence: int) -> Answer:
    """Read a reply that claims to answer call `sequence`.

    Raises:
        Bad: anything that is not exactly such a reply.
    """
    if len(frame) < REPLY_OVERHEAD:
        raise Bad("a malformed frame")
    got, code, flags, reward, length = _REPLY.unpack_from(frame)
    if got != sequence:
        raise Bad(f"a reply to call {got}, which is not in flight")
    if code >= len(CODES):
        raise Bad("a reply with an impossible outcome")
    rest = frame[REPLY_OVERHEAD:]
    if flags > 7 or length > len(rest):
        raise Bad("a malformed frame")
    if len(rest) - length > DETAIL_BYTES:
        raise Bad("a reply with an impossible detail")
    if flags & 4 and not math.isfinite(reward):
        raise Bad("a reply with an impossible reward")
    try:
        text, detail = rest[:length].decode(), rest[length:].decode()
    except UnicodeDecodeError:
        raise Bad("a reply with an impossible text") from None
    return Answer(
        CODES[code], text, reward if flags & 4 else None, bool(flags & 1), bool(flags & 2), detail,
        reply_bytes=len(frame) + 4,
    )  # fmt: skip


class FrameReader:
    """Collects one frame at a time from a stream; checks the length before it keeps a byte."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._held = bytearray()
        self._length: int | None = None

    @property
    def wanted(self) -> int:
        """Bytes until the header or the frame is complete; never above cap."""
        return (4 if self._length is None else self._length) - len(self._held)

    def push(self, chunk: bytes) -> tuple[bytes | None, bytes]:
        """Take in bytes: the frame if it is complete, and what came after it.

        Raises:
            TooLong: the announced length is above the cap.
        """
        if self._length is None:
            need = 4 - len(self._held)
            self._held += chunk[:need]
            chunk = chunk[need:]
            if len(self._held) < 4:
                return None, b""
            (length,) = _LENGTH.unpack(self._held)
            if length > self._cap:
                raise TooLong(length)
            self._length = length
            self._held.clear()
        need = self._length - len(self._held)
        self._held += chunk[:need]
        if len(self._held) < self._length:
            return None, b""
        frame = bytes(self._held)
        self._held.clear()
        self._length = None
        return frame, chunk[need:]
