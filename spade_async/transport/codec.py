"""A message as exactly two frames: a msgpack header and one packed block of typed arrays.

Header frame: CRC-32 (4 bytes, little-endian), then a msgpack array ``[kind, schema, sender, seq,
cumulative, ranges, plain, sizes, delivered]``: `kind` is a class name of `messages` or ""
(acknowledgements alone), `plain` has the values of the record's plain fields in its order, `sizes`
the number of elements of each of its arrays, or the shape of one that has not one dimension. Names
and types are those of the record: both ends have the same one, or the schema differs. Nothing of
ours is pickled. A frame is data from outside: sizes are capped before anything is allocated and
every fault is a `FrameError`, never another exception.

The checksum covers the rest of the header and a block of up to 4 KiB. The header fixes the length
and the tiling of any block, so a cut or shifted one is refused. The content of a larger one is left
to what carries it: ipc and loopback are memory of this kernel, and off loopback CURVE authenticates
every byte. A checksum of ours would cost as much as the sending itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from spade_async.errors import TransportError
from spade_async.transport.block import (
    MAX_DIMENSIONS,
    Buffer,
    Size,
    laid_out,
    lay_out,
    pack_sizes,
    unpack_sizes,
)
from spade_async.transport.fields import SPECS, RecordSpec
from spade_async.transport.messages import SCHEMA, Message
from spade_async.transport.native import message_codec

HEADER_BYTES = 8 << 20
"""Most bytes in a header frame."""
MAX_ITEMS = 1 << 17
"""Most items in one list or dict of a header."""
MAX_RANGES = 512
"""Most ranges of acknowledged sequence numbers in one header."""
_MAX_SEQ = 1 << 62
_CHECKSUM_BYTES = 4
_COVERED_BYTES = 1 << 12
"""Largest block that the checksum covers."""
_GATHERED_BYTES = 1 << 14
"""Most bytes of arrays that the native codec gathers; numpy copies more of them faster."""
_NATIVE = message_codec(
    (SCHEMA, HEADER_BYTES, _COVERED_BYTES, MAX_ITEMS, MAX_RANGES, _GATHERED_BYTES), SPECS
)
_new_tuple = tuple.__new__
_PACK = msgpack.Packer(unicode_errors="surrogatepass", autoreset=True).pack
"""Keeps its buffer between messages. One call is one step of the interpreter: any thread may."""


class FrameError(TransportError):
    """Incoming frames that are not a message; `code` is a short reason for counting."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Envelope(NamedTuple):
    """A message with what the link needs to deliver it once."""

    sender: str
    """Incarnation of the sender."""
    message: Message | None
    """None: acknowledgements alone."""
    seq: int = 0
    """1, 2, ... for reliable messages of this sender to this receiver; 0 for others."""
    cumulative: int = 0
    """The sender has acknowledged every sequence number up to this one."""
    ranges: tuple[tuple[int, int], ...] = ()
    """Further acknowledged (first, last) pairs."""
    delivered: int = 0
    """Every sequence number up to this one came and need not come again."""


Frames = tuple[bytes, Buffer]


def encode(envelope: Envelope, max_bytes: int) -> Frames:
    """The two frames of a message.

    Raises:
        TransportError: a field has a wrong type, or a frame is above its cap.
    """
    return _ordinary_frames(envelope, max_bytes) or _frames(envelope, max_bytes)


def _ordinary_frames(envelope: Envelope, max_bytes: int) -> Frames | None:
    message = envelope.message
    spec = SPECS.get(type(message).__name__)
    if message is None or spec is None or spec.record is not type(message) or not spec.arrays:
        return _NATIVE.encode(envelope, max_bytes, None, None)
    arrays = spec.read_arrays(message)
    known = laid_out(arrays)
    if known is None or known.kinds != spec.kinds:
        return _NATIVE.encode(envelope, max_bytes, None, None)
    return _NATIVE.encode(envelope, max_bytes, known.sizes, known.block)


def _frames(envelope: Envelope, max_bytes: int) -> Frames:
    """What is not ordinary, and everything that is wrong."""
    sender, message, seq, cumulative, ranges, delivered = envelope
    kind, plain, sizes, block = "", (), (), b""  # type: tuple[str, Any, Any, Buffer]
    if message is not None:
        kind = type(message).__name__
        spec = SPECS.get(kind)
        if spec is None or spec.record is not type(message):
            raise TransportError(f"{kind} is not a message of the link; see transport.messages")
        plain = spec.read_plain(message)
        place = spec.wrong_field(plain)
        if place is not None:
            name, expected = spec.names[place], spec.plain[spec.names[place]].type_name
            raise TransportError(f"{kind}.{name} is a {_short(plain[place])}, expected {expected}")
        if spec.arrays:
            sizes, block = _pack_block(kind, spec, message)
    flat = [bound for pair in ranges for bound in pair] if ranges else ()
    try:
        body = _PACK([kind, SCHEMA, sender, seq, cumulative, flat, plain, sizes, delivered])
    except (TypeError, ValueError, OverflowError, RecursionError) as cause:
        raise TransportError(f"{kind} cannot be packed: {cause}") from cause
    _check_sizes(len(body) + _CHECKSUM_BYTES, len(block), max_bytes, kind)
    return checksum(body, block).to_bytes(_CHECKSUM_BYTES, "little") + body, block


def laid_out_fields(kind: type[Message], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a large message, its arrays copied into one block that is sent as it lies."""
    names = SPECS[kind.__name__].arrays
    return {**values, **lay_out({name: values[name] for name in names})}


def checksum(body: Buffer, block: Buffer) -> int:
    """CRC-32 of the header after its first four bytes, and of a small block."""
    covered = zlib.crc32(body)
    return zlib.crc32(block, covered) if len(block) <= _COVERED_BYTES else covered


def decode(frames: Sequence[Buffer], max_bytes: int) -> Envelope:
    """The message in two frames; arrays are read-only views of the block.

    Raises:
        FrameError: anything at all is wrong with them.
    """
    if len(frames) != 2:
        raise FrameError("frames", f"{len(frames)} frames, expected 2")
    header, block = frames
    if type(header) is bytes:
        found = _NATIVE.decode(header, block, max_bytes)
        if found is not None:
            return _new_tuple(Envelope, found)
    return _decode(header, block, max_bytes)


def _decode(header: Buffer, block: Buffer, max_bytes: int) -> Envelope:
    """What is not ordinary, and everything that is wrong."""
    try:
        _check_sizes(len(header), len(block), max_bytes, "")
    except TransportError as cause:
        raise FrameError("too_large", str(cause)) from cause
    body = memoryview(header)[_CHECKSUM_BYTES:]
    told = int.from_bytes(header[:_CHECKSUM_BYTES], "little")
    if not body or checksum(body, block) != told:
        raise FrameError("checksum", "the frames are damaged (wrong checksum)")
    fields = _unpack(body)
    if type(fields) is not list or len(fields) < 2 or type(fields[0]) is not str:
        raise FrameError("header", "the header is not a message")
    if fields[1] != SCHEMA:
        raise FrameError(
            "schema",
            f"the other side speaks schema {fields[1]!r}, this one {SCHEMA}: "
            "run the same version of the program everywhere",
        )
    if len(fields) != 9:
        raise FrameError("header", f"the header has {len(fields)} fields, expected 9")
    kind, _, sender, seq, cumulative, flat, plain, sizes, delivered = fields
    if (
        type(sender) is not str
        or len(sender) > 255
        or not (_is_seq(seq) and _is_seq(cumulative) and _is_seq(delivered))
    ):
        raise FrameError("header", "sender or sequence numbers are malformed")
    message = _message(kind, plain, sizes, block)
    if message is None and seq:
        raise FrameError("header", "acknowledgements carry a sequence number")
    if message is not None and message.reliable != bool(seq):
        raise FrameError("header", f"{kind} has sequence number {seq}")
    return Envelope(sender, message, seq, cumulative, _ranges(flat), delivered)


def _message(kind: str, plain: Any, sizes: Any, block: Buffer) -> Message | None:
    if kind == "":
        if plain or sizes or block:
            raise FrameError("header", "acknowledgements carry fields")
        return None
    spec = SPECS.get(kind)
    if spec is None:
        raise FrameError("kind", f"unknown message {kind[:64]!r}")
    if type(plain) is not list or type(sizes) is not list:
        raise FrameError("header", f"{kind}: fields are malformed")
    if len(plain) != len(spec.plain) or len(sizes) != len(spec.kinds):
        found = f"{len(plain)} fields and {len(sizes)} arrays"
        expected = f"{len(spec.plain)} and {len(spec.kinds)}"
        raise FrameError("fields", f"{kind} has {found}, expected {expected}")
    place = spec.wrong_field(plain)
    if place is not None:
        name, found = spec.names[place], type(plain[place]).__name__
        expected = spec.plain[name].type_name
        raise FrameError("type", f"{kind}.{name} is a {found}, expected {expected}")
    try:
        arrays = unpack_sizes(spec.kinds, sizes, block)
    except TransportError as cause:
        raise FrameError("block", f"{kind}: {cause}") from cause
    return spec.record(**dict(zip(spec.names, plain + arrays, strict=True)))


def _pack_block(kind: str, spec: RecordSpec, message: Message) -> tuple[list[Size], Buffer]:
    arrays = spec.read_arrays(message)
    known = laid_out(arrays)
    if known is not None and known.kinds == spec.kinds:
        return known.sizes, known.block
    for (name, dtype), array in zip(spec.kinds, arrays, strict=True):
        found = getattr(array, "dtype", None)
        if found is not dtype and found != dtype:
            what = found if found is not None else type(array).__name__
            raise TransportError(f"{kind}.{name} is {what}, expected {dtype}")
        if array.ndim > MAX_DIMENSIONS:
            what = f"{array.ndim} dimensions, at most {MAX_DIMENSIONS}"
            raise TransportError(f"{kind}.{name} has {what}")
    return pack_sizes(arrays)


def _unpack(body: memoryview) -> Any:
    try:
        return msgpack.unpackb(
            body,
            unicode_errors="surrogatepass",
            strict_map_key=True,
            max_str_len=len(body),
            max_bin_len=0,
            max_ext_len=0,
            max_array_len=min(MAX_ITEMS, len(body)),
            max_map_len=min(MAX_ITEMS, len(body)),
        )
    except (ValueError, TypeError, RecursionError, OverflowError) as cause:
        raise FrameError("header", f"the header is not msgpack: {cause}"[:300]) from cause
    except msgpack.UnpackException as cause:
        raise FrameError("header", f"the header is not msgpack: {cause}"[:300]) from cause


def _ranges(flat: Any) -> tuple[tuple[int, int], ...]:
    if type(flat) is list and not flat:
        return ()
    if type(flat) is not list or len(flat) % 2 or len(flat) > 2 * MAX_RANGES:
        raise FrameError("header", "acknowledged ranges are malformed")
    pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
    if not all(_is_seq(first) and _is_seq(last) and first <= last for first, last in pairs):
        raise FrameError("header", "acknowledged ranges are malformed")
    return pairs


def _is_seq(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_SEQ


def _check_sizes(header_bytes: int, block_bytes: int, max_bytes: int, kind: str) -> None:
    what = kind and f"{kind}: "
    if header_bytes > HEADER_BYTES or header_bytes > max_bytes:
        raise TransportError(
            f"{what}header of {header_bytes} bytes is above the cap; shorten texts"
        )
    if block_bytes > max_bytes:
        raise TransportError(
            f"{what}block of {block_bytes} bytes is above link.max_message_bytes={max_bytes}"
        )


def _short(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.60}"
