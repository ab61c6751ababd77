"""Chat messages to token ids and back, for any tokenizer with a chat template.

History is never tokenised again: a conversation is the prompt's ids, the sampled ids, the ids of
the next turn's fragment, and so on. Text of environments is never read as control tokens.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from spade_async.domain import ChatTurn
from spade_async.engine.offline import check_model_folder, stay_offline
from spade_async.engine.plain_text import PlainText
from spade_async.errors import ConfigError, GenerationError

_SENTINEL = "\ue000{}\ue001"
"""Stands for a content while the template is rendered (private-use characters)."""
_ANY_SENTINEL = re.compile(_SENTINEL.format(r"(\d+)"))


class ChatTokens:
    """One tokenizer with its chat template. Make it with `from_folder`."""

    def __init__(self, tokenizer: Any, extra_stop_ids: tuple[int, ...] = ()) -> None:
        self._tokenizer = tokenizer
        self._plain = PlainText(tokenizer)
        self._trims = self._trims_content()
        stops = set(extra_stop_ids)
        if tokenizer.eos_token_id is not None:
            stops.add(int(tokenizer.eos_token_id))
        close = self._leading_control_token(self._closing_text())
        if close is not None:
            stops.add(self._plain.control[close])
        self.stop_token_ids: tuple[int, ...] = tuple(sorted(stops))
        """Ids that end a turn: end of text and the token that closes the assistant's turn."""

    @classmethod
    def from_folder(cls, folder: str | Path) -> ChatTokens:
        """Load the tokenizer of a model folder, without any hub.

        `tokenizer_hash.txt`, when there is one, must hold the sha256 of tokenizer.json.

        Raises:
            ConfigError: no folder, no tokenizer, no chat template, or another hash.
        """
        folder = Path(folder)
        config = check_model_folder(folder)
        _check_hash(folder)
        stay_offline()
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        except Exception as cause:
            raise ConfigError(
                f"the tokenizer in {folder} cannot be loaded ({type(cause).__name__}: {cause}): "
                "copy the model folder again, tokenizer files included"
            ) from cause
        if not tokenizer.chat_template:
            raise ConfigError(f"the tokenizer in {folder} has no chat template: use a chat model")
        return cls(tokenizer, _eos_ids(folder, config))

    def encode_prompt(self, messages: list[ChatTurn]) -> list[int]:
        """Ids of a conversation up to where the assistant begins to speak."""
        return self._encode(messages, self._render(messages, generate=True))

    def encode_turn(self, messages: list[ChatTurn], after_stop: bool) -> list[int]:
        """Ids that continue a running conversation after the assistant's sampled tokens.

        Args:
            messages: what is said before the assistant speaks again.
            after_stop: whether the sampled tokens end with a stop token; the template's closing
                token is then left out, for it is there already. False after a cut at the limit.

        Raises:
            GenerationError: the template cannot continue a conversation.
        """
        if not messages:
            raise GenerationError("encode_turn needs at least one message")
        count = len(messages)
        said = _SENTINEL.format(count)
        asked = ChatTurn(messages[0].role, _SENTINEL.format(count + 1))
        before = [asked, ChatTurn("assistant", said)]
        rendered = self._apply([*before, *_with_sentinels(messages)], generate=True)
        _, found, tail = rendered.partition(said)
        if not found:
            raise GenerationError(
                "the chat template does not render assistant messages, so a conversation of "
                "several turns cannot be continued: use a template with an assistant role, or "
                "agent.max_turns=1"
            )
        if after_stop:
            close = self._leading_control_token(tail)
            if close is not None and self._plain.control[close] in self.stop_token_ids:
                tail = tail[len(close) :]
        return self._encode(messages, tail)

    def decode(self, ids: list[int]) -> str:
        """Text of ids, control tokens left out."""
        text = self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)

    def _encode(self, messages: list[ChatTurn], rendered: str) -> list[int]:
        """Ids of a rendering in which each content is still its sentinel."""
        contents = [m.content.strip() if self._trims else m.content for m in messages]
        if all(self._plain.is_plain(content) for content in contents):
            # The usual case: tokenised as one text, exactly as the model was trained.
            filled = _ANY_SENTINEL.sub(lambda match: contents[int(match[1])], rendered)
            return self._plain.encode_template(filled)
        ids: list[int] = []
        for i, content in enumerate(contents):
            template, found, rest = rendered.partition(_SENTINEL.format(i))
            if not found:
                continue
            ids += self._plain.encode_template(template) + self._plain.encode_content(content)
            rendered = rest
        return ids + self._plain.encode_template(rendered)

    def _render(self, messages: list[ChatTurn], *, generate: bool) -> str:
        return self._apply(_with_sentinels(messages), generate=generate)

    def _apply(self, messages: list[ChatTurn], *, generate: bool) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                [{"role": m.role, "content": m.content} for m in messages],
                tokenize=False,
                add_generation_prompt=generate,
            )
        except Exception as cause:
            roles = ", ".join(m.role for m in messages)
            raise GenerationError(
                f"the chat template refuses messages with the roles {roles}: {cause}"
            ) from cause
        return str(text)

    def _closing_text(self) -> str:
        """What the template writes after an assistant's words; "" when it cannot be told."""
        said = _SENTINEL.format(0)
        try:
            text = self._apply([ChatTurn("user", "x"), ChatTurn("assistant", said)], generate=False)
        except GenerationError:
            return ""
        return text.partition(said)[2]

    def _trims_content(self) -> bool:
        """Whether the template strips white space around a content (many do)."""
        spaced = f" {_SENTINEL.format(0)} "
        try:
            return spaced not in self._apply([ChatTurn("user", spaced)], generate=False)
        except GenerationError:
            return False

    def _leading_control_token(self, text: str) -> str | None:
        matches = [token for token in self._plain.control if text.startswith(token)]
        return max(matches, key=len, default=None)


def _with_sentinels(messages: list[ChatTurn]) -> list[ChatTurn]:
    return [ChatTurn(m.role, _SENTINEL.format(i)) for i, m in enumerate(messages)]


def _check_hash(folder: Path) -> None:
    recorded = folder / "tokenizer_hash.txt"
    if not recorded.is_file():
        return
    tokenizer = folder / "tokenizer.json"
    wanted = recorded.read_text().strip()
    found = hashlib.sha256(tokenizer.read_bytes()).hexdigest() if tokenizer.is_file() else "missing"
    if found != wanted:
        raise ConfigError(
            f"{tokenizer} has sha256 {found[:16]}, but {recorded.name} says {wanted[:16]}: the "
            "tokenizer is not the one this model was trained with; make or copy the model again"
        )


def _eos_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """End-of-text ids of config.json and generation_config.json."""
    found: list[Any] = [config.get("eos_token_id")]
    path = folder / "generation_config.json"
    if path.is_file():
        try:
            found.append(json.loads(path.read_text()).get("eos_token_id"))
        except ValueError as cause:
            raise ConfigError(f"{path} is damaged ({cause}): copy the model again") from cause
    flat = [i for value in found for i in (value if isinstance(value, list) else [value])]
    return tuple({int(i) for i in flat if i is not None})
