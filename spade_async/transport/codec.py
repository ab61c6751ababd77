"""A message as exactly two frames: a msgpack header and one packed block of typed arrays.

Header frame: CRC-32 (4 bytes, little-endian), then a msgpack array ``[kind, schema, sender, seq,
cumulative, ranges, plain, arrays, delivered]``: `kind` is a class name of `messages` or ""
(acknowledgements alone), `plain` maps field names to values, `arrays` has ``[name, dtype, shape,
offset]`` of each array in the block (see `block`). Nothing of ours is pickled. A frame is data from
outside: sizes are capped before anything is allocated and every fault is a `FrameError`, never
another exception.

The checksum covers the rest of the header and a block of up to 64 KiB. The header fixes the length
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
    ArraySpec,
    Buffer,
    laid_out,
    lay_out,
    pack_arrays,
    unpack_arrays,
    unpack_lines,
)
from spade_async.transport.fields import SPECS, RecordSpec
from spade_async.transport.messages import SCHEMA, Message

HEADER_BYTES = 8 << 20
"""Most bytes in a header frame."""
MAX_ITEMS = 1 << 17
"""Most items in one list or dict of a header."""
MAX_RANGES = 512
"""Most ranges of acknowledged sequence numbers in one header."""
_MAX_SEQ = 1 << 62
_CHECKSUM_BYTES = 4
_COVERED_BYTES = 1 << 16
"""Largest block that the checksum covers."""


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
    message = envelope.message
    kind = "" if message is None else type(message).__name__
    plain: dict[str, Any] = {}
    specs: list[ArraySpec] = []
    block: Buffer = b""
    if message is not None:
        spec = SPECS.get(kind)
        if spec is None or spec.record is not type(message):
            raise TransportError(f"{kind} is not a message of the link; see transport.messages")
        for name, (types, check, type_name) in spec.plain.items():
            plain[name] = value = getattr(message, name)
            if type(value) not in types and not check(value):
                raise TransportError(f"{kind}.{name} is a {_short(value)}, expected {type_name}")
        if spec.arrays:
            specs, block = _pack_block(kind, spec, message)
    flat = [bound for pair in envelope.ranges for bound in pair]
    numbers = [envelope.seq, envelope.cumulative, flat]
    fields = [kind, SCHEMA, envelope.sender, *numbers, plain, specs, envelope.delivered]
    try:
        body = msgpack.packb(fields, unicode_errors="surrogatepass")
    except (TypeError, ValueError, OverflowError, RecursionError) as cause:
        raise TransportError(f"{kind} cannot be packed: {cause}") from cause
    _check_sizes(len(body) + _CHECKSUM_BYTES, len(block), max_bytes, f"{kind}: ")
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
    try:
        _check_sizes(len(header), len(block), max_bytes, "")
    except TransportError as cause:
        raise FrameError("too_large", str(cause)) from cause
    body = memoryview(header)[_CHECKSUM_BYTES:]
    told = int.from_bytes(header[:_CHECKSUM_BYTES], "little")
    if len(header) <= _CHECKSUM_BYTES or checksum(body, block) != told:
        raise FrameError("checksum", "the frames are damaged (wrong checksum)")
    fields = _unpack(body)
    if not isinstance(fields, list) or len(fields) < 2 or not isinstance(fields[0], str):
        raise FrameError("header", "the header is not a message")
    kind, schema = fields[:2]
    if schema != SCHEMA:
        raise FrameError(
            "schema",
            f"the other side speaks schema {schema!r}, this one {SCHEMA}: "
            "run the same version of the program everywhere",
        )
    if len(fields) != 9:
        raise FrameError("header", f"the header has {len(fields)} fields, expected 9")
    _, _, sender, seq, cumulative, flat, plain, specs, delivered = fields
    if (
        not isinstance(sender, str)
        or len(sender) > 255
        or not (_is_seq(seq) and _is_seq(cumulative) and _is_seq(delivered))
    ):
        raise FrameError("header", "sender or sequence numbers are malformed")
    message = _message(kind, plain, specs, block)
    if message is None and seq:
        raise FrameError("header", "acknowledgements carry a sequence number")
    if message is not None and message.reliable != bool(seq):
        raise FrameError("header", f"{kind} has sequence number {seq}")
    return Envelope(sender, message, seq, cumulative, _ranges(flat), delivered)


def _message(kind: str, plain: Any, specs: Any, block: Buffer) -> Message | None:
    if kind == "":
        if plain or specs or block:
            raise FrameError("header", "acknowledgements carry fields")
        return None
    spec = SPECS.get(kind)
    if spec is None:
        raise FrameError("kind", f"unknown message {kind[:64]!r}")
    if not isinstance(plain, dict) or not isinstance(specs, list):
        raise FrameError("header", f"{kind}: fields are malformed")
    arrays = unpack_lines(spec.kinds, specs, block)
    array_specs = [] if arrays is not None else [_array_spec(kind, item) for item in specs]
    array_names = list(spec.arrays) if arrays is not None else [item.name for item in array_specs]
    if plain.keys() != spec.plain.keys() or array_names != list(spec.arrays):
        names = sorted((plain.keys() ^ spec.plain.keys()) | (set(array_names) ^ set(spec.arrays)))
        raise FrameError("fields", f"{kind}: missing, extra or unordered fields {names[:8]}"[:500])
    for name, (types, check, type_name) in spec.plain.items():
        value = plain[name]
        if type(value) not in types and not check(value):
            found = type(value).__name__
            raise FrameError("type", f"{kind}.{name} is a {found}, expected {type_name}")
    if arrays is None:
        try:
            arrays = unpack_arrays(array_specs, block)
        except TransportError as cause:
            raise FrameError("block", f"{kind}: {cause}") from cause
        for name, dtype in spec.arrays.items():
            if arrays[name].dtype != dtype:
                what = f"{kind}.{name} has dtype {arrays[name].dtype}, not {dtype}"
                raise FrameError("type", what)
    return spec.record(**plain, **arrays)


def _pack_block(kind: str, spec: RecordSpec, message: Message) -> tuple[list[ArraySpec], Buffer]:
    arrays = [(name, getattr(message, name)) for name in spec.arrays]
    known = laid_out([array for _, array in arrays])
    if known is not None and known.kinds == spec.kinds:
        return known.specs, known.block
    for name, array in arrays:
        dtype = getattr(array, "dtype", None)
        if dtype != spec.arrays[name]:
            found = dtype if dtype is not None else type(array).__name__
            raise TransportError(f"{kind}.{name} is {found}, expected {spec.arrays[name]}")
    return pack_arrays(arrays)


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


def _array_spec(kind: str, item: Any) -> ArraySpec:
    if type(item) is list and len(item) == 4:
        name, dtype, shape, offset = item
        is_named = type(name) is str and type(dtype) is str and _is_seq(offset)
        if is_named and type(shape) is list and len(shape) <= 8 and all(map(_is_seq, shape)):
            return ArraySpec(name, dtype, tuple(shape), offset)
    raise FrameError("block", f"{kind}: an array description is malformed")


def _ranges(flat: Any) -> tuple[tuple[int, int], ...]:
    if flat == [] and type(flat) is list:
        return ()
    if not isinstance(flat, list) or len(flat) % 2 or len(flat) > 2 * MAX_RANGES:
        raise FrameError("header", "acknowledged ranges are malformed")
    pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
    if not all(_is_seq(first) and _is_seq(last) and first <= last for first, last in pairs):
        raise FrameError("header", "acknowledged ranges are malformed")
    return pairs


def _is_seq(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_SEQ


def _check_sizes(header_bytes: int, block_bytes: int, max_bytes: int, what: str) -> None:
    if header_bytes > min(HEADER_BYTES, max_bytes):
        raise TransportError(
            f"{what}header of {header_bytes} bytes is above the cap; shorten texts"
        )
    if block_bytes > max_bytes:
        raise TransportError(
            f"{what}block of {block_bytes} bytes is above link.max_message_bytes={max_bytes}"
        )


def _short(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.60}"
