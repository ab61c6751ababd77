"""The header of a safetensors file, read without importing anything heavy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_HEADER_BYTES = 100 << 20


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor in a file."""

    dtype: str
    """As safetensors names it: F32, BF16, ..."""
    shape: tuple[int, ...]
    begin: int
    """First byte, from the start of the file."""
    end: int


def read_header(file: Path) -> dict[str, StoredTensor]:
    """Name -> tensor of a file.

    Raises:
        ValueError: what is wrong with the file.
        OSError: it cannot be read.
    """
    size = file.stat().st_size
    if size == 0:
        raise ValueError("it is empty")
    with file.open("rb") as source:
        header_bytes = int.from_bytes(source.read(8), "little")
        if not 2 <= header_bytes <= min(size - 8, _MAX_HEADER_BYTES):
            raise ValueError("its header does not fit")
        try:
            header: dict[str, Any] = json.loads(source.read(header_bytes))
            start = 8 + header_bytes
            found = {
                name: StoredTensor(
                    str(entry["dtype"]),
                    tuple(int(n) for n in entry["shape"]),
                    start + int(entry["data_offsets"][0]),
                    start + int(entry["data_offsets"][1]),
                )
                for name, entry in header.items()
                if name != "__metadata__"
            }
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise ValueError("its header cannot be read") from None
    wanted = max((tensor.end for tensor in found.values()), default=start)
    if wanted != size:
        raise ValueError(f"it holds {size} bytes, its header says {wanted}")
    return found
