"""Chat messages to token ids and back, for any tokenizer with a chat template.

History is never tokenised again: a conversation is the prompt's ids, the sampled ids, the ids of
the next turn's fragment, and so on. Text of environments is never read as control tokens.
"""

from __future__ import annotations

import bisect
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spade_async.agent.prompt import Said
from spade_async.domain import ChatTurn
from spade_async.engine.chat_template import (
    ANY_SENTINEL,
    SENTINEL,
    THINK_BEGIN,
    THINK_END,
    ChatTemplate,
    with_sentinels,
)
from spade_async.engine.offline import check_model_folder, stay_offline
from spade_async.engine.plain_text import PlainText
from spade_async.errors import ConfigError, GenerationError

Content = str | list[int]
"""What stands at a sentinel: text from outside, or the ids of what the policy said."""


class ChatTokens:
    """One tokenizer with its chat template. Make it with `from_folder`."""

    def __init__(
        self,
        tokenizer: Any,
        extra_stop_ids: tuple[int, ...] = (),
        *,
        thinking: bool | None = None,
        key: str = "thinking",
    ) -> None:
        """See `from_folder` for `thinking` and `key`."""
        self._tokenizer = tokenizer
        self._extra_stop_ids = extra_stop_ids
        self._plain = PlainText(tokenizer)
        self._template = ChatTemplate(tokenizer, thinking, key)
        special = {int(i) for i in tokenizer.all_special_ids}
        ids = {mark: self._plain.control.get(mark) for mark in (THINK_BEGIN, THINK_END)}
        self._marks = {i: mark for mark, i in ids.items() if i is not None and i in special}
        """Marks of thinking that decoding would leave out, by id."""
        stops = set(extra_stop_ids)
        if tokenizer.eos_token_id is not None:
            stops.add(int(tokenizer.eos_token_id))
        close = self._leading_control_token(self._template.closing())
        if close is not None:
            stops.add(self._plain.control[close])
        self.stop_token_ids: tuple[int, ...] = tuple(sorted(stops))
        """Ids that end a turn: end of text and the token that closes the assistant's turn."""

    @property
    def has_switch(self) -> bool:
        """Whether the template has a thinking switch."""
        return self._template.has_switch

    @classmethod
    def from_folder(
        cls,
        folder: str | Path,
        *,
        thinking: bool | None = None,
        key: str = "thinking",
        quick: bool = False,
    ) -> ChatTokens:
        """Load the tokenizer of a model folder, without any hub.

        `tokenizer_hash.txt`, when there is one, must hold the sha256 of tokenizer.json.

        Args:
            folder: of the model.
            thinking: sets the template's thinking switch; None leaves it as the template has it.
            key: of the configuration that `thinking` comes from.
            quick: read tokenizer.json alone, without torch (a second instead of five). Rules that
                a tokenizer's own class adds to it are left out.

        Raises:
            ConfigError: no folder, no tokenizer, no chat template, another hash, or no switch.
        """
        folder = Path(folder)
        config = check_model_folder(folder)
        _check_hash(folder)
        stay_offline()
        loader: Any
        if quick:
            from transformers import PreTrainedTokenizerFast as loader
        else:
            from transformers import AutoTokenizer as loader

        try:
            tokenizer = loader.from_pretrained(str(folder), local_files_only=True)
        except Exception as cause:
            raise ConfigError(
                f"the tokenizer in {folder} cannot be loaded ({type(cause).__name__}: {cause}): "
                "copy the model folder again, tokenizer files included"
            ) from cause
        if not tokenizer.chat_template:
            raise ConfigError(f"the tokenizer in {folder} has no chat template: use a chat model")
        return cls(tokenizer, _eos_ids(folder, config), thinking=thinking, key=key)

    def with_thinking(self, thinking: bool | None, key: str) -> ChatTokens:
        """The same tokenizer with the switch set otherwise.

        Raises:
            ConfigError: the template has no such switch.
        """
        return ChatTokens(self._tokenizer, self._extra_stop_ids, thinking=thinking, key=key)

    def encode_prompt(self, messages: list[ChatTurn]) -> list[int]:
        """Ids of a conversation up to where the assistant begins to speak."""
        return self.encode_history(messages)

    def encode_history(self, messages: Sequence[ChatTurn | Said]) -> list[int]:
        """The same with replies in it: their sampled ids, without what the template leaves out."""
        turns = [ChatTurn("assistant", "") if isinstance(m, Said) else m for m in messages]
        contents: list[Content] = [
            self.remembered(m.token_ids) if isinstance(m, Said) else m.content for m in messages
        ]
        return self._encode(contents, self._template.render(with_sentinels(turns), generate=True))

    def retells(self, reply_ids: Sequence[int]) -> bool:
        """Whether the next prompt leaves a part of this reply out: its thinking."""
        if not self._template.forgets_thinking:
            return False
        mark = self._plain.control.get(THINK_END)
        return mark in reply_ids or THINK_END in self.decode(list(reply_ids))

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
        said = SENTINEL.format(count)
        asked = ChatTurn(messages[0].role, SENTINEL.format(count + 1))
        before = [asked, ChatTurn("assistant", said)]
        rendered = self._template.render([*before, *with_sentinels(messages)], generate=True)
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
        return self._encode([m.content for m in messages], tail)

    def decode(self, ids: list[int]) -> str:
        """Text of ids, control tokens left out but for the marks of thinking."""
        marks = self._marks
        if not marks:
            return self._decode_run(ids)
        text = ""
        run: list[int] = []
        for token in ids:
            if token in marks:
                text += self._decode_run(run) + marks[token]
                run = []
            else:
                run.append(token)
        return text + self._decode_run(run)

    def _decode_run(self, ids: list[int]) -> str:
        text = self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)

    def exact_text(self, ids: Sequence[int]) -> str:
        """Text of ids, control tokens included."""
        return str(self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    def remembered(self, reply_ids: Sequence[int]) -> list[int]:
        """Ids of a reply as later prompts have it: no stop token, no thinking. Idempotent."""
        ids = list(reply_ids)
        while ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        if not self._template.forgets_thinking:
            return ids
        end = self._end_of_thinking(ids)
        if end is None:
            return ids
        if not self.decode(ids[max(0, end - 8) : end]).rstrip("\n").endswith(THINK_END):
            # A token reaches over the mark's end: only the text can be cut there.
            text = self.decode(ids).rsplit(THINK_END, 1)[1]
            return self._plain.encode_content(text.lstrip("\n"))
        answer = ids[end:]
        while answer and not self.decode(answer[:1]).strip("\n"):
            answer.pop(0)
        return answer

    def _end_of_thinking(self, ids: list[int]) -> int | None:
        """Place behind the last mark that ends thinking, or None without one."""
        mark = self._plain.control.get(THINK_END)
        marked = [i for i, token in enumerate(ids) if token == mark]
        rest = ids[marked[-1] + 1 :] if marked else ids
        later = self.decode(rest).count(THINK_END)
        if not later:
            return marked[-1] + 1 if marked else None
        # Spelled out in ordinary tokens. A prefix never has more marks than the whole.
        return (
            len(ids)
            - len(rest)
            + bisect.bisect_left(
                range(len(rest)), later, key=lambda n: self.decode(rest[:n]).count(THINK_END)
            )
        )

    def _encode(self, contents: list[Content], rendered: str) -> list[int]:
        """Ids of a rendering in which each content is still its sentinel."""
        pieces = ANY_SENTINEL.split(rendered)
        ids: list[int] = []
        template, texts = [pieces[0]], []
        for number, after in zip(pieces[1::2], pieces[2::2], strict=True):
            content = contents[int(number)]
            if isinstance(content, str):
                texts.append(self._outside(content))
                template.append(after)
            else:
                ids += self._encode_texts(template, texts) + content
                template, texts = [after], []
        return ids + self._encode_texts(template, texts)

    def _encode_texts(self, template: list[str], texts: list[str]) -> list[int]:
        """Ids of template pieces with texts from outside between them."""
        if all(self._plain.is_plain(text) for text in texts):
            # The usual case: tokenised as one text, exactly as the model was trained.
            joined = [part for pair in zip(template, texts, strict=False) for part in pair]
            return self._plain.encode_template("".join([*joined, template[-1]]))
        ids = self._plain.encode_template(template[0])
        for text, after in zip(texts, template[1:], strict=True):
            ids += self._plain.encode_content(text) + self._plain.encode_template(after)
        return ids

    def _outside(self, content: str) -> str:
        """Text from outside as it is shown: trimmed as the template does, no lone surrogates."""
        shown = content.strip() if self._template.trims else content
        return shown.encode("utf-8", "replace").decode("utf-8")

    def _leading_control_token(self, text: str) -> str | None:
        matches = [token for token in self._plain.control if text.startswith(token)]
        return max(matches, key=len, default=None)


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
