"""Sizes as a user writes them: 2GB, "500 MB", 64MiB, or a number of bytes."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")

WORDS = 'a size such as "2GB" or "500MiB", or a number of bytes'


def parse_size(value: Any) -> Any:
    """Bytes of a text with a unit; anything else is left for the field to judge."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    factor = _UNITS.get(found[2].upper()) if found else None
    if found is None or factor is None:
        return value
    return int(float(found[1]) * factor)


Size = Annotated[int, BeforeValidator(parse_size)]
"""Bytes in the resolved configuration."""


def in_units(num_bytes: int) -> str:
    """A size for a sentence: "1.5 GB", "320 MB"."""
    for unit in ("TB", "GB", "MB", "KB"):
        if num_bytes >= _UNITS[unit]:
            return f"{num_bytes / _UNITS[unit]:.3g} {unit}"
    return f"{num_bytes} B"
