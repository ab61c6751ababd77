"""A token trace as one compact block: the arrays of the link's packed block, compressed.

Logged versions repeat over a sample, so level 1 of zlib already takes most of the bytes away.
"""

from __future__ import annotations

import struct
import zlib
from collections import OrderedDict

import numpy as np

from spade_async.errors import TransportError
from spade_async.transport.block import ArraySpec, pack_arrays, unpack_arrays
from spade_async.types import TokenTrace

_HEAD = struct.Struct("<4sII")
"""Magic, number of tokens [L], CRC-32 of the packed (uncompressed) block."""
_MAGIC = b"TRC1"
_MAGIC_STARTS = b"TRC2"
"""Of a trace of several sequences: their number and starts, four bytes each, follow the head."""
_MAGIC_EXPERTS = b"TRC3"
"""Of a trace with experts: as TRC2 (the number may be 0), and behind it routers and k."""
_DTYPES = ("i4", "u1", "f4", "i8")
_EXPERTS = "experts"


def pack_trace(trace: TokenTrace) -> bytes:
    """Bytes of a trace.

    Raises:
        ValueError: the arrays have unequal lengths or a wrong dtype.
    """
    length = len(trace.token_ids)
    try:
        arrays = [(name, getattr(trace, name)) for name in _FIELDS]
        if trace.experts is not None:
            arrays.append((_EXPERTS, trace.experts))
        specs, block = pack_arrays(arrays)
    except TransportError as cause:
        raise ValueError(str(cause)) from cause
    for spec, dtype in zip(specs[: len(_FIELDS)], _DTYPES, strict=True):
        if spec.dtype != dtype or spec.shape != (length,):
            raise ValueError(f"trace.{spec.name}: {spec.dtype}{spec.shape}, not {dtype}({length},)")
    packed = zlib.compress(block, 1)
    if not trace.starts and trace.experts is None:
        return _HEAD.pack(_MAGIC, length, zlib.crc32(block)) + packed
    starts = struct.pack(f"<I{len(trace.starts)}I", len(trace.starts), *trace.starts)
    magic = _MAGIC_STARTS
    if trace.experts is not None:
        shape = trace.experts.shape
        if trace.experts.dtype != np.int16 or len(shape) != 3 or shape[0] != length:
            raise ValueError(f"trace.experts: {trace.experts.dtype}{shape}, not i2({length}, _, _)")
        magic, starts = _MAGIC_EXPERTS, starts + struct.pack("<II", *shape[1:])
    return _HEAD.pack(magic, length, zlib.crc32(starts + block)) + starts + packed


def unpack_trace(stored: bytes) -> TokenTrace:
    """Inverse of `pack_trace`.

    Raises:
        ValueError: damaged bytes.
    """
    if len(stored) < _HEAD.size:
        raise ValueError(f"{len(stored)} bytes are too few")
    magic, length, checksum = _HEAD.unpack_from(stored)
    if magic not in (_MAGIC, _MAGIC_STARTS, _MAGIC_EXPERTS):
        raise ValueError("wrong magic")
    body, head = memoryview(stored)[_HEAD.size :], b""
    starts: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    try:
        if magic != _MAGIC:
            size = 4 + 4 * int(struct.unpack_from("<I", body)[0])
            starts = struct.unpack(f"<{size // 4}I", body[:size])[1:]
            if magic == _MAGIC_EXPERTS:
                shape = (length, *struct.unpack("<II", body[size : size + 8]))
                size += 8
            head, body = bytes(body[:size]), body[size:]
        block = zlib.decompress(body)
        if zlib.crc32(head + block) != checksum:
            raise ValueError("wrong checksum")
        arrays = unpack_arrays(_specs(length, shape), block)
    except (zlib.error, struct.error, TransportError) as cause:
        raise ValueError(str(cause)) from cause
    ids, mask, logprobs, versions = (arrays[name] for name in _FIELDS)
    return TokenTrace(ids, mask, logprobs, versions, starts, arrays.get(_EXPERTS))


_FIELDS = ("token_ids", "loss_mask", "generator_logprobs", "versions")


def _specs(length: int, experts: tuple[int, ...]) -> list[ArraySpec]:
    specs, offset = [], 0
    for name, dtype in zip(_FIELDS, _DTYPES, strict=True):
        specs.append(ArraySpec(name, dtype, (length,), offset))
        offset += -(-length * int(dtype[1]) // 8) * 8
    if experts:
        specs.append(ArraySpec(_EXPERTS, "i2", experts, offset))
    return specs


_RECORD_BYTES = 1024
"""What four small arrays cost beside their data, about."""


class RecentTraces:
    """Traces that were written a short while ago, so that a batch need not read them again.

    Only a short cut: what is not here is in the table. The oldest leave first when it is full.
    """

    def __init__(self, most_bytes: int = 16 << 20) -> None:
        self._most_bytes = most_bytes
        self._traces: OrderedDict[str, TokenTrace] = OrderedDict()
        self._num_bytes = 0

    def put(self, sample_id: str, trace: TokenTrace) -> None:
        """Keep a trace; one that is kept under that name already stays."""
        if sample_id in self._traces:
            return
        self._traces[sample_id] = trace
        self._num_bytes += _num_bytes(trace)
        while self._num_bytes > self._most_bytes:
            _, oldest = self._traces.popitem(last=False)
            self._num_bytes -= _num_bytes(oldest)

    def take(self, sample_id: str) -> TokenTrace | None:
        """A trace, which leaves; None when it is not here."""
        trace = self._traces.pop(sample_id, None)
        if trace is not None:
            self._num_bytes -= _num_bytes(trace)
        return trace

    def clear(self) -> None:
        """Forget all: what was written is rolled back."""
        self._traces.clear()
        self._num_bytes = 0


def _num_bytes(trace: TokenTrace) -> int:
    experts = 0 if trace.experts is None else trace.experts.nbytes
    return _RECORD_BYTES + experts + sum(int(getattr(trace, name).nbytes) for name in _FIELDS)
