"""The packed block: arrays end to end, each 8-byte aligned, described by specs beside it.

Packing copies every array once, into one block. Large arrays that already lie in one block and that
nobody can write to (`lay_out`, or the arrays of a received message) are sent as they lie: nothing
is copied. An array that can still be written to is always copied, because the link keeps a message
until it is acknowledged and must repeat what was sent, not what became of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spade_async.errors import TransportError

DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype("<" + name) for name in ("u1", "i4", "i8", "f4", "f8")
}
"""The closed set of element types on the wire, all little-endian."""
MAX_DIMENSIONS = 4
Buffer = bytes | memoryview
"""Bytes that are read where they lie."""
_ALIGNMENT = 8
_SHARE_BYTES = 1 << 16
"""From here on copying costs more than finding out that it is not needed. ZeroMQ copies smaller
frames anyway."""


class ArraySpec(NamedTuple):
    """Where one array lies in the block."""

    name: str
    dtype: str
    """Key of `DTYPES`."""
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start of the block; a multiple of 8."""


def pack_arrays(arrays: Sequence[tuple[str, NDArray[Any]]]) -> tuple[list[ArraySpec], Buffer]:
    """Lay arrays out in one block.

    Raises:
        TransportError: an element type outside `DTYPES`, or too many dimensions.
    """
    specs, size = _specs(arrays)
    if size >= _SHARE_BYTES:
        shared = _shared_block([array for _, array in arrays], specs, size)
        if shared is not None:
            return specs, shared
    parts: list[Buffer] = []
    for _, array in arrays:
        if array.nbytes:
            parts.append(np.ascontiguousarray(array).data.cast("B"))
            if padding := -array.nbytes % _ALIGNMENT:
                parts.append(bytes(padding))
    return specs, b"".join(parts)


def lay_out(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Read-only copies of the arrays that lie in one block, which is then sent without copying.

    For large messages only: below 64 KiB it changes nothing.

    Raises:
        TransportError: as `pack_arrays`.
    """
    specs, size = _specs(list(arrays.items()))
    block = np.zeros(size, np.uint8)
    for spec in specs:
        array = arrays[spec.name]
        place = block[spec.offset : spec.offset + array.nbytes]
        place.view(array.dtype).reshape(array.shape)[...] = array
    block.flags.writeable = False
    return unpack_arrays(specs, block.data)


def _specs(arrays: Sequence[tuple[str, NDArray[Any]]]) -> tuple[list[ArraySpec], int]:
    specs: list[ArraySpec] = []
    offset = 0
    for name, array in arrays:
        if not isinstance(array, np.ndarray):
            raise TransportError(f"{name} is a {type(array).__name__}, not an array")
        dtype = array.dtype.str[1:]
        if DTYPES.get(dtype) != array.dtype:
            raise TransportError(f"{name} has dtype {array.dtype}; allowed: {', '.join(DTYPES)}")
        if array.ndim > MAX_DIMENSIONS:
            raise TransportError(f"{name} has {array.ndim} dimensions, at most {MAX_DIMENSIONS}")
        specs.append(ArraySpec(name, dtype, array.shape, offset))
        offset += array.nbytes + -array.nbytes % _ALIGNMENT
    return specs, offset


def _shared_block(
    arrays: Sequence[NDArray[Any]], specs: Sequence[ArraySpec], size: int
) -> memoryview | None:
    """The memory that the arrays lie in, when it is exactly their block and read-only."""
    block = arrays[0].base
    if not isinstance(block, np.ndarray) or block.flags.writeable or block.nbytes != size:
        return None
    start = _address(block)
    for array, spec in zip(arrays, specs, strict=True):
        # `unpack_arrays` makes every view directly of one flat array: no chain to follow.
        is_there = array.base is block and _address(array) == start + spec.offset
        if array.nbytes and not (is_there and array.flags.c_contiguous):
            return None
        if array.flags.writeable:
            return None
    return block.data.cast("B")


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def unpack_arrays(specs: Sequence[ArraySpec], block: Buffer) -> dict[str, NDArray[Any]]:
    """Read-only views of the arrays in a block; nothing is copied.

    Raises:
        TransportError: the specs do not tile the block exactly, in order.
    """
    flat = np.frombuffer(memoryview(block).toreadonly(), np.uint8)
    arrays: dict[str, NDArray[Any]] = {}
    end = 0
    for name, dtype_name, shape, offset in specs:
        dtype = DTYPES.get(dtype_name)
        if dtype is None:
            raise TransportError(f"{name} has unknown dtype {dtype_name!r}")
        if len(shape) > MAX_DIMENSIONS or any(size < 0 for size in shape):
            raise TransportError(f"{name} has an impossible shape")
        if offset != end:
            raise TransportError(f"{name} is at offset {offset}, expected {end}")
        # Python integers: a product that would overflow 64 bits is simply larger than the block.
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes > flat.nbytes - offset:
            raise TransportError(
                f"{name} needs {nbytes} bytes beyond offset {offset} of {flat.nbytes}"
            )
        try:
            arrays[name] = np.ndarray(shape, dtype, flat, offset)
        except (ValueError, TypeError) as cause:
            # No elements, but other sizes beyond what numpy can hold.
            raise TransportError(f"{name} has an impossible shape") from cause
        end = offset + nbytes + -nbytes % _ALIGNMENT
    if end != flat.nbytes:
        raise TransportError(f"block has {flat.nbytes} bytes, its arrays take {end}")
    return arrays
