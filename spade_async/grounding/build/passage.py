"""A text as passages: what becomes the rows of a corpus that is built."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

LEAST_WORDS = 40
"""A text that is shorter says too little to ground a task."""
LEAST_REST = 0.6
"""The last passage of a long text has at least this part of the others' words."""
_WORD = re.compile(r"\S+")
_BLANK_LINES = re.compile(r"\n[ \t]*\n(?:[ \t]*\n)+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Text:
    """A text as it was found."""

    text: str
    source: str
    """Where it comes from: "package: path" or "distribution: module:name"."""
    licence: str


def passages(text: str, words: int) -> Iterator[str]:
    """Windows of so many words with their layout; a text of up to `words` is one.

    Too short texts and too short ends give none.
    """
    text = _BLANK_LINES.sub("\n\n", _CONTROL.sub("", text.replace("\r\n", "\n"))).strip()
    found = list(_WORD.finditer(text))
    for at in range(0, len(found), words):
        some = found[at : at + words]
        least = LEAST_REST * words if at else LEAST_WORDS
        if len(some) >= least:
            yield text[some[0].start() : some[-1].end()]


def fingerprint(text: str) -> str:
    """Equal for texts that differ in whitespace and case only."""
    return hashlib.sha256(" ".join(text.lower().split()).encode()).hexdigest()
