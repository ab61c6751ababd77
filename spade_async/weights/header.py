"""The header of a safetensors file: names, shapes and which names are the same tensor. No torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from spade_async.errors import WeightsError

ALIASES = "aliases"
"""Key of our own table in a header: name -> name of the tensor that it shares memory with."""
_MAX_BYTES = 100 << 20


@dataclass(frozen=True, slots=True)
class WeightHeader:
    """What one file holds."""

    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    """As safetensors names them: "F32", "BF16"."""
    aliases: dict[str, str]

    def stored(self) -> dict[str, str]:
        """Every name, aliases included -> name it is stored under."""
        return {name: name for name in self.shapes} | self.aliases


def read_header(file: BinaryIO, where: str) -> WeightHeader:
    """Read the header from the start of an open file.

    Raises:
        WeightsError: it is damaged.
    """
    try:
        file.seek(0)
        size = int.from_bytes(file.read(8), "little")
        if not 2 <= size <= _MAX_BYTES:
            raise ValueError(f"a header of {size} bytes")
        table = json.loads(file.read(size))
        meta = table.pop("__metadata__", {})
        shapes = {str(n): tuple(int(d) for d in t["shape"]) for n, t in table.items()}
        dtypes = {str(n): str(t["dtype"]) for n, t in table.items()}
        aliases = {str(a): str(n) for a, n in json.loads(meta.get(ALIASES, "{}")).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise WeightsError(f"weights at {where} are damaged: {cause}") from cause
    return WeightHeader(shapes, dtypes, aliases)


def folder_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of all weights of a model folder; {} when it holds no safetensors.

    Raises:
        WeightsError: one of its files is damaged.
    """
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            found |= read_header(file, str(path)).shapes
    return found
