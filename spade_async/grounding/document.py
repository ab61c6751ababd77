"""One document of a corpus, and a row that is none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """A text the designer is grounded in. Example: Document("heapq:heappush", "Push item ...")."""

    document_id: str
    """Unique within its corpus and stable between runs."""
    text: str


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was skipped."""

    place: str
    """Where it is, for a person: "line 12", or the byte or row number in its file."""
    reason: str


def cut_words(text: str, max_words: int) -> str:
    """The first `max_words` words of a text, line breaks and indentation kept."""
    end = 0
    for _ in range(max_words):
        while end < len(text) and text[end].isspace():
            end += 1
        while end < len(text) and not text[end].isspace():
            end += 1
    return text[:end].strip()


CUT_MARK = "[... truncated]"
"""Last line of a text that the reference's rule has cut."""


def cut_words_as_reference(text: str, max_words: int) -> str:
    """A longer text with its whitespace collapsed, cut, and marked; a shorter one as it is."""
    words = text.split()
    if len(words) <= max_words:
        return text
    return " ".join(words[:max_words]) + f"\n{CUT_MARK}"
