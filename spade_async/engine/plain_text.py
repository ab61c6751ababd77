"""Text from environments as plain tokens: role markers inside it never become control tokens."""

from __future__ import annotations

import re
from typing import Any

_LOOKS_LIKE_A_MARKER = re.compile(r"<[^<>\s]{1,62}>|\[[A-Z_/]{1,30}\]")
"""An added token of this form steers a model whether or not it is called special: Qwen's
``<think>`` and ``<tool_call>`` are not, and added runs of blanks are no markers."""


class PlainText:
    """Encodes template text (control tokens wanted) and content (control tokens never).

    `control` maps the text of each control token (role markers, marks of thinking and of tools, end
    of text, padding; not the unknown token) to its id.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        special = tokenizer.all_special_tokens
        tokens = {str(t): int(tokenizer.convert_tokens_to_ids(t)) for t in special}
        for i, token in tokenizer.added_tokens_decoder.items():
            if token.special or _LOOKS_LIKE_A_MARKER.fullmatch(str(token.content)):
                tokens[str(token.content)] = int(i)
        tokens.pop(str(tokenizer.unk_token), None)
        self.control: dict[str, int] = tokens
        self._ids = frozenset(tokens.values())
        longest_first = sorted(tokens, key=len, reverse=True)
        self._marker = re.compile("|".join(map(re.escape, longest_first))) if tokens else None

    def encode_template(self, text: str) -> list[int]:
        """Ids of text written by the chat template."""
        return self._encode(text, split=False) if text else []

    def is_plain(self, content: str) -> bool:
        """Whether the content yields no control token when encoded in the ordinary way."""
        if self._marker is None:
            return True
        if self._marker.search(content):
            return False
        # Normalisation can turn other characters into a marker: ask the tokenizer as well.
        return self._normaliser is None or self._ids.isdisjoint(self._encode(content, split=False))

    def encode_content(self, content: str) -> list[int]:
        """Ids of text from outside, markers spelled out in ordinary tokens."""
        ids = self._encode(content, split=True)
        if self._ids.isdisjoint(ids) or self._marker is None:
            return ids
        # The tokenizer knows the marker as a word of its vocabulary too: spell it by character.
        ids = []
        position = 0
        for match in self._marker.finditer(content):
            ids += self._encode(content[position : match.start()], split=True)
            for character in match.group():
                ids += self._encode(character, split=True)
            position = match.end()
        ids += self._encode(content[position:], split=True)
        return [i for i in ids if i not in self._ids]

    @property
    def _normaliser(self) -> Any:
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        return getattr(backend, "normalizer", None)

    def _encode(self, text: str, *, split: bool) -> list[int]:
        encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=split)
        return list(encoded["input_ids"])
