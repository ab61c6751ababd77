"""Bounded, printable forms of untrusted text for logs, transcripts and reasons."""

from __future__ import annotations

import re

TRANSCRIPT_CHARS = 400
"""Longest text of one field of a transcript."""

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)


def clean(text: str, limit: int = TRANSCRIPT_CHARS) -> str:
    """The text without control characters, bidi marks, tags and lone surrogates, cut at `limit`.

    New lines and tabs stay. A cut text ends in an ellipsis and has exactly `limit` characters.
    """
    kept = _CONTROL.sub("", text[: 2 * limit])
    if len(kept) > limit or len(text) > 2 * limit:
        return kept[: limit - 1] + "…"
    return kept


def few_lines(text: str, limit: int) -> str:
    """The first `limit` lines, and how many more there are.

    What is laid out for people costs by the line, also by the blank one.
    """
    parts = text.split("\n", limit)
    if len(parts) <= limit or not parts[limit]:
        return text
    left = parts[limit].count("\n") + (not parts[limit].endswith("\n"))
    return "\n".join([*parts[:limit], f"... and {left} more line{'s' if left > 1 else ''}"])


def one_line(text: str, limit: int = 200) -> str:
    """`clean` with all white space folded to single spaces."""
    return clean(" ".join(text[: 4 * limit].split()), limit)
