"""Frames that no part of ours would send, by seed: each with the reason it must be counted under.

A `Mutator` starts from good frames of every message that may travel in one direction and spoils
them: bytes changed, frames cut, doubled, out of order or too large, headers rebuilt with a right
checksum around wrong fields, and random bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgpack

from spade_async.transport.codec import Envelope, checksum, encode
from spade_async.transport.messages import SCHEMA, Message

Parts = list[bytes]
REASONS = frozenset(
    {
        "frames",
        "too_large",
        "checksum",
        "header",
        "schema",
        "kind",
        "fields",
        "type",
        "block",
    }
)
"""Every reason that `codec.decode` gives."""


class Mutator:
    """Bad frames without end; the same ones for the same seed and messages."""

    def __init__(self, sender: str, messages: Sequence[Message], cap: int, seed: int) -> None:
        """`sender`: the incarnation to pose as; `cap`: `link.max_message_bytes` of the receiver."""
        self._random = random.Random(seed)
        self._cap = cap
        self._sender = sender
        self._good = [
            encode(Envelope(sender, message, 1 if message.reliable else 0), cap)
            for message in messages
        ]
        self._ways: tuple[Callable[[bytes, bytes], Parts], ...] = (
            self._changed_byte, self._cut, self._random_bytes, self._frames_more_or_less,
            self._too_large, self._other_field, self._other_plain, self._other_array,
            self._other_sequence, self._nested, self._huge_claims,
        )  # fmt: skip

    def __iter__(self) -> Iterator[Parts]:
        """Frames to send, as the parts after a routing id."""
        while True:
            header, block = self._random.choice(self._good)
            yield self._random.choice(self._ways)(header, bytes(block))

    def _changed_byte(self, header: bytes, block: bytes) -> Parts:
        parts = [bytearray(header), bytearray(block)]
        part = self._random.choice([part for part in parts if part])
        for _ in range(self._random.choice((1, 1, 2, 8))):
            part[self._random.randrange(len(part))] ^= self._random.randrange(1, 256)
        return [bytes(part) for part in parts]

    def _cut(self, header: bytes, block: bytes) -> Parts:
        if block and self._random.random() < 0.5:
            return [header, block[: self._random.randrange(len(block))]]
        return [header[: self._random.randrange(len(header))], block]

    def _random_bytes(self, header: bytes, block: bytes) -> Parts:
        body = self._random.randbytes(self._random.randrange(80))
        if self._random.random() < 0.5:
            return [self._random.randbytes(4) + body, block]
        return sealed(body, block)

    def _frames_more_or_less(self, header: bytes, block: bytes) -> Parts:
        return self._random.choice(
            ([header], [b""], [header, block, b""], [header, header, block, block], [header] * 9)
        )

    def _too_large(self, header: bytes, block: bytes) -> Parts:
        return [header, bytes(self._cap + 1 + self._random.randrange(self._cap // 2))]

    def _other_field(self, header: bytes, block: bytes) -> Parts:
        fields = _fields(header)
        index = self._random.choice((0, 1, 5, 6, 7, 8))
        if index == 8:
            self._random.choice((fields.pop, lambda: fields.append(None)))()
        elif index == 1:
            fields[1] = self._random.choice((0, 1, SCHEMA + 1, -1, "2", None))
        else:
            fields[index] = self._thing()
        return sealed(_packed(fields), block)

    def _other_plain(self, header: bytes, block: bytes) -> Parts:
        fields = _fields(header)
        plain = fields[6]
        way = self._random.randrange(3) if plain else 1
        if way == 0:
            plain.pop(self._random.randrange(len(plain)))
        elif way == 1:
            plain.append(self._thing())
        else:
            bad = self._random.choice((b"", {"a": {"b": [b""]}}, [[]], {1: 2}, 1 << 63))
            plain[self._random.randrange(len(plain))] = bad
        return sealed(_packed(fields), block)

    def _other_array(self, header: bytes, block: bytes) -> Parts:
        fields = _fields(header)
        if not fields[7]:
            fields[7] = [1]
            return sealed(_packed(fields), block + bytes(8))
        fields[7][self._random.randrange(len(fields[7]))] = self._random.choice((
            -8, 1 << 61, 8 * len(block) + 8, None, True, "8", 1.5, [1 << 61], [1 << 61] * 4, [-1],
            [0] * 9, [0, 1 << 61, 1 << 61, 1 << 61], [1.5], {}, [len(block), 1 << 40],
        ))  # fmt: skip
        return sealed(_packed(fields), block)

    def _other_sequence(self, header: bytes, block: bytes) -> Parts:
        fields = _fields(header)
        way = self._random.randrange(5)
        if way == 0:
            fields[3] = self._random.choice((-1, 1 << 62, 1.5, None, True, "1"))
        elif way == 1:
            fields[4] = self._random.choice((-1, 1 << 62, None, [1]))
        elif way == 2:
            fields[5] = self._random.choice(([3], [5, 3], [0] * 4000, [-1, 2], None, ["a", "b"]))
        elif way == 3:
            fields[8] = self._random.choice((-1, 1 << 62, 1.5, None, True, "1", [1]))
        else:
            fields[2] = self._random.choice((None, 7, "x" * 300))
        return sealed(_packed(fields), block)

    def _nested(self, header: bytes, block: bytes) -> Parts:
        # Deeper than a parser that recurses could follow.
        depth = self._random.choice((600, 5_000, 100_000))
        return sealed(b"\x91" * depth, block)

    def _huge_claims(self, header: bytes, block: bytes) -> Parts:
        # Arrays, maps, strings and binaries that say they have 4 GiB.
        claim = self._random.choice((b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"))
        return sealed(b"\x98" + claim + b"\xff\xff\xff\xff", block)

    def _thing(self) -> Any:
        return self._random.choice(
            (None, True, -1, 1 << 60, 0.5, "Bomb", "", [], {}, [1, [2, [3]]], {"a": 1}, "x" * 200)
        )


def sealed(body: bytes, block: bytes) -> Parts:
    """Frames with a right checksum around anything."""
    return [checksum(body, block).to_bytes(4, "little") + body, block]


def _fields(header: bytes) -> list[Any]:
    fields: list[Any] = msgpack.unpackb(header[4:], unicode_errors="surrogatepass")
    return fields


def _packed(fields: list[Any]) -> bytes:
    return msgpack.packb(fields, unicode_errors="surrogatepass")
