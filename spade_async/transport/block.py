"""The packed block: arrays end to end, each 8-byte aligned, described by specs beside it.

Packing copies every array once, into one block. Arrays that `lay_out` made lie in one block that
nobody can write to; they are sent as they lie: nothing is copied. An array that can still be
written to is always copied, because the link keeps a message until it is acknowledged and must
repeat what was sent, not what became of it.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spade_async.errors import TransportError

DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype("<" + name) for name in ("u1", "i2", "i4", "i8", "f4", "f8")
}
"""The closed set of element types on the wire, all little-endian."""
MAX_DIMENSIONS = 4
Buffer = bytes | memoryview
"""Bytes that are read where they lie."""
Size = int | list[int]
"""Elements of an array of one dimension, or the shape of any other, as a header states it."""
_ALIGNMENT = 8
_PADDING = tuple(map(bytes, range(_ALIGNMENT)))


class ArraySpec(NamedTuple):
    """Where one array lies in the block."""

    name: str
    dtype: str
    """Key of `DTYPES`."""
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start of the block; a multiple of 8."""


class LaidOut:
    """Arrays that `lay_out` put into one block: known again by identity, with their specs."""

    def __init__(self, specs: list[ArraySpec], arrays: Sequence[NDArray[Any]]) -> None:
        self.specs = specs
        self.kinds = tuple((spec.name, DTYPES[spec.dtype]) for spec in specs)
        self.sizes: list[Size] = [
            spec.shape[0] if len(spec.shape) == 1 else list(spec.shape) for spec in specs
        ]
        block = arrays[0].base
        assert isinstance(block, np.ndarray)
        self.block = block.data
        """Holds the memory; the arrays hold it too, so nothing lives longer by it than they do."""
        # A reference that dies cannot be mistaken for an array that came later to the same place.
        self._arrays = [weakref.ref(array) for array in arrays]

    def holds(self, arrays: Sequence[NDArray[Any]]) -> bool:
        """Whether these are the very arrays, in this order."""
        if len(arrays) != len(self._arrays):
            return False
        # Not `all(...)`: this is asked of every message.
        for known, array in zip(self._arrays, arrays, strict=True):  # noqa: SIM110
            if known() is not array:
                return False
        return True


_LAID_OUT: dict[int, LaidOut] = {}
"""By id of the first array; an entry goes with that array."""


def laid_out(arrays: Sequence[NDArray[Any]]) -> LaidOut | None:
    """What `lay_out` knows of these arrays; None when it did not make them, or not all together."""
    entry = _LAID_OUT.get(id(arrays[0])) if arrays else None
    return entry if entry is not None and entry.holds(arrays) else None


def pack_arrays(arrays: Sequence[tuple[str, NDArray[Any]]]) -> tuple[list[ArraySpec], Buffer]:
    """Lay arrays out in one block.

    Raises:
        TransportError: an element type outside `DTYPES`, or too many dimensions.
    """
    specs, _ = _specs(arrays)
    return specs, pack_sizes([array for _, array in arrays])[1]


def lay_out(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Read-only copies of the arrays that lie in one block, which is then sent without copying.

    Name them in the order of the record's fields: a message with other arrays beside them, or with
    them in another order, is packed as any other.

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
    found = unpack_arrays(specs, block.data)
    if found:
        first = next(iter(found.values()))
        _LAID_OUT[id(first)] = LaidOut(specs, list(found.values()))
        weakref.finalize(first, _LAID_OUT.pop, id(first), None).atexit = False
    return found


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


def pack_sizes(arrays: Sequence[NDArray[Any]]) -> tuple[list[Size], Buffer]:
    """Sizes and block of arrays whose names and element types both ends know."""
    sizes: list[Size] = []
    parts: list[Any] = []
    for array in arrays:
        sizes.append(array.size if array.ndim == 1 else list(array.shape))
        if array.nbytes:
            parts.append(array if array.flags.c_contiguous else np.ascontiguousarray(array))
            if padding := -array.nbytes % _ALIGNMENT:
                parts.append(_PADDING[padding])
    return sizes, b"".join(parts)


def unpack_sizes(
    kinds: Sequence[tuple[str, np.dtype[Any]]], sizes: Sequence[Any], block: Buffer
) -> list[NDArray[Any]]:
    """Read-only views of arrays whose names and types are known; nothing is copied.

    Args:
        kinds: name and element type of each.
        sizes: what a header says of their sizes, unchecked; as many as `kinds`.
        block: their bytes.

    Raises:
        TransportError: the sizes are not sizes, or do not tile the block exactly.
    """
    # Small blocks are bytes; what lies in ZeroMQ's memory could be written to.
    readable = block if type(block) is bytes else memoryview(block).toreadonly()
    arrays: list[NDArray[Any]] = []
    size, end = len(block), 0
    for (name, dtype), items in zip(kinds, sizes, strict=True):
        is_line = type(items) is int
        # Python integers: a product that would overflow 64 bits is simply larger than the block.
        nbytes = (items if is_line else _num_items(name, items)) * dtype.itemsize
        if not 0 <= nbytes <= size - end:
            raise TransportError(f"{name} needs {nbytes} bytes beyond offset {end} of {size}")
        if not nbytes:
            arrays.append(_empty(name, dtype, items))
        elif is_line:
            arrays.append(np.frombuffer(readable, dtype, items, end))
        else:
            arrays.append(np.ndarray(items, dtype, readable, end))
        end += nbytes + -nbytes % _ALIGNMENT
    if end != size:
        raise TransportError(f"block has {size} bytes, its arrays take {end}")
    return arrays


def _num_items(name: str, shape: Any) -> int:
    is_short = type(shape) is list and len(shape) <= MAX_DIMENSIONS
    if not is_short or not all(type(size) is int and size >= 0 for size in shape):
        raise TransportError(f"{name} has an impossible shape")
    return math.prod(shape)


def _empty(name: str, dtype: np.dtype[Any], items: Any) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.zeros(items, dtype)
    except (ValueError, TypeError) as cause:
        # No elements, but other sizes beyond what numpy can hold.
        raise TransportError(f"{name} has an impossible shape") from cause
    array.flags.writeable = False
    return array
