"""What a row of a corpus says: which key holds its text, how it is cut, when it is a bad row.

Ours: `orig_doc` if it is a text that is not blank, else `text`; what is no object, has neither or
is not UTF-8 is a bad row, skipped and counted. With `run.compat = "reference"`: `orig_doc` if
truthy, else `text`, so that a blank `orig_doc` hides a good `text`; a row that is valid JSON and no
object ends the run. Source: SPADE reference 7.2 and its errata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spade_async.errors import ConfigError
from spade_async.grounding.document import cut_words, cut_words_as_reference

TEXT_KEYS = ("orig_doc", "text")
"""Keys under which the text is looked for, in order."""


@dataclass(frozen=True, slots=True)
class Bad:
    """Why there is no document in a row."""

    reason: str


Content = bytes | str | Mapping[str, Any] | Bad
"""A line of JSON, a passage, columns, or why it could not be read."""


@dataclass(frozen=True, slots=True)
class RowRule:
    """Turns rows into texts."""

    max_words: int
    """Longer texts are cut."""
    is_reference: bool = False
    """The reference's rules, its known mistakes included."""

    def text(self, content: Content) -> str | Bad:
        """The text of a row, cut; or why it is skipped.

        Raises:
            ConfigError: only by the reference's rule: valid JSON that is no object.
        """
        if isinstance(content, Bad):
            return content
        if isinstance(content, bytes):
            content = _parsed(content)
            if isinstance(content, Bad):
                return content
        if isinstance(content, str):
            return self._cut(content) if content.strip() else Bad("blank")
        if not isinstance(content, Mapping):
            reason = f"not an object but {type(content).__name__}"
            if self.is_reference:
                raise ConfigError(
                    f'{reason}: the reference stops here (run.compat="reference"); "off" skips it'
                )
            return Bad(reason)
        return self._text_of(content)

    def _text_of(self, row: Mapping[str, Any]) -> str | Bad:
        first, second = (row.get(key) for key in TEXT_KEYS)
        candidates = (first or second,) if self.is_reference else (first, second)
        for text in candidates:
            if isinstance(text, str) and text.strip():
                return self._cut(text)
        return Bad(f"no text under {' or '.join(TEXT_KEYS)}")

    def _cut(self, text: str) -> str:
        text = text.encode("utf-8", "replace").decode()  # JSON can spell lone surrogates
        cut = cut_words_as_reference if self.is_reference else cut_words
        return cut(text, self.max_words)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Bad(f"not UTF-8: byte 0x{line[error.start]:02x} at character {error.start}")
    except (ValueError, RecursionError) as error:
        return Bad(f"not JSON: {type(error).__name__}")
