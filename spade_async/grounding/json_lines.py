"""A corpus from a JSON-lines file: one object with `text` (or `orig_doc`) per line."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from spade_async.errors import ConfigError
from spade_async.grounding.document import BadRow, Document, cut_words

logger = logging.getLogger(__name__)

MAX_LINE_CHARS = 4 << 20
"""A longer line is a bad row; it is not parsed."""

TEXT_KEYS = ("text", "orig_doc")
"""Keys under which the text is looked for, in order."""


def read_json_lines(path: Path, *, max_document_words: int) -> tuple[list[Document], list[BadRow]]:
    """Documents of a file in its order, and the rows that were skipped with the reason.

    The id of a document is ``"NAME:LINE"``. Blank lines are neither. Bad rows are logged in sum.

    Raises:
        ConfigError: the file cannot be read as UTF-8 text.
    """
    documents: list[Document] = []
    bad_rows: list[BadRow] = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                text = _text_of(line)
                if isinstance(text, _Bad):
                    bad_rows.append(BadRow(number, text.reason))
                else:
                    text = cut_words(text, max_document_words)
                    documents.append(Document(f"{path.name}:{number}", text))
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(
            f"grounding.corpus={str(path)!r} cannot be read ({cause}): give a UTF-8 JSON-lines "
            f'file or "stdlib-docstrings"'
        ) from cause
    if bad_rows:
        first = bad_rows[0]
        logger.warning(
            "corpus %s: %d of %d rows skipped, first line %d: %s",
            path, len(bad_rows), len(bad_rows) + len(documents), first.line, first.reason,
        )  # fmt: skip
    return documents, bad_rows


class _Bad:
    def __init__(self, reason: str) -> None:
        self.reason = reason


def _text_of(line: str) -> str | _Bad:
    if len(line) > MAX_LINE_CHARS:
        return _Bad(f"line of {len(line)} characters, at most {MAX_LINE_CHARS} are read")
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return _Bad(f"not JSON: {type(error).__name__}")
    if not isinstance(row, dict):
        return _Bad(f"not an object but {type(row).__name__}")
    for key in TEXT_KEYS:
        text = row.get(key)
        if isinstance(text, str) and text.strip():
            return text
    return _Bad(f"no text under {' or '.join(TEXT_KEYS)}")
