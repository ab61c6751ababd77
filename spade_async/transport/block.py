"""The packed block: arrays end to end, each 8-byte aligned, described by specs beside it."""

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
_ALIGNMENT = 8


class ArraySpec(NamedTuple):
    """Where one array lies in the block."""

    name: str
    dtype: str
    """Key of `DTYPES`."""
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start of the block; a multiple of 8."""


def pack_arrays(arrays: Sequence[tuple[str, NDArray[Any]]]) -> tuple[list[ArraySpec], bytes]:
    """Lay arrays out in one block.

    Raises:
        TransportError: an element type outside `DTYPES`, or too many dimensions.
    """
    specs: list[ArraySpec] = []
    parts: list[bytes | memoryview] = []
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
        parts.append(np.ascontiguousarray(array).data.cast("B") if array.nbytes else b"")
        padding = -array.nbytes % _ALIGNMENT
        if padding:
            parts.append(bytes(padding))
        offset += array.nbytes + padding
    return specs, b"".join(parts)


def unpack_arrays(specs: Sequence[ArraySpec], block: bytes | memoryview) -> dict[str, NDArray[Any]]:
    """Read-only views of the arrays in a block; nothing is copied.

    Raises:
        TransportError: the specs do not tile the block exactly, in order.
    """
    view = memoryview(block).toreadonly()
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
        count = math.prod(shape)
        nbytes = count * dtype.itemsize
        if nbytes > len(view) - offset:
            raise TransportError(
                f"{name} needs {nbytes} bytes beyond offset {offset} of {len(view)}"
            )
        array = np.frombuffer(view, dtype, count, offset) if count else np.empty(0, dtype)
        try:
            array = array.reshape(shape)
        except ValueError as cause:  # no elements, but other sizes beyond what numpy can hold
            raise TransportError(f"{name} has an impossible shape") from cause
        array.flags.writeable = False
        arrays[name] = array
        end = offset + nbytes + -nbytes % _ALIGNMENT
    if end != len(view):
        raise TransportError(f"block has {len(view)} bytes, its arrays take {end}")
    return arrays
