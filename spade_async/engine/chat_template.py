"""A tokenizer's own chat template, asked what it does: the thinking switch, what it leaves out.

Contents are never given to the template: each stands as a sentinel while it renders, so text from
an environment cannot be cut by it or matched by its rules.
"""

from __future__ import annotations

import re
from typing import Any

from spade_async.domain import ChatTurn
from spade_async.errors import ConfigError, GenerationError

SENTINEL = "\ue000{}\ue001"
"""Stands for a content (private-use characters)."""
ANY_SENTINEL = re.compile(SENTINEL.format(r"(\d+)"))
SWITCHES = ("enable_thinking", "thinking")
"""Variables of a template that turn thinking on and off: of the Qwen3 class, and of others."""
THINK_BEGIN, THINK_END = "<think>", "</think>"


class ChatTemplate:
    """The template of a tokenizer, with its thinking switch set or left alone."""

    def __init__(self, tokenizer: Any, thinking: bool | None = None, key: str = "thinking") -> None:
        """Take the template.

        Args:
            tokenizer: with a chat template.
            thinking: what the switch is set to; None leaves it to the template.
            key: of the configuration, for the error.

        Raises:
            ConfigError: the template has no such switch.
        """
        self._tokenizer = tokenizer
        self._switches: dict[str, bool] = {}
        self.has_switch = self._tries_switch()
        """Whether the thinking switch changes how a reply begins."""
        if thinking is not None:
            if not self.has_switch:
                raise ConfigError(no_switch(key, thinking, str(tokenizer.name_or_path)))
            self._switches = dict.fromkeys(SWITCHES, thinking)
        self.trims = self._trims_content()
        """Whether it strips white space around a content (many do)."""
        self.forgets_thinking = thinking is not False and self._forgets_thinking()
        """Whether it leaves the thinking of earlier replies out."""

    def render(self, messages: list[ChatTurn], *, generate: bool) -> str:
        """Text of the messages as they are, ready for a reply if `generate`.

        Raises:
            GenerationError: the template refuses them.
        """
        try:
            text = self._tokenizer.apply_chat_template(
                [{"role": m.role, "content": m.content} for m in messages],
                tokenize=False,
                add_generation_prompt=generate,
                **self._switches,
            )
        except Exception as cause:
            roles = ", ".join(m.role for m in messages)
            raise GenerationError(
                f"the chat template refuses messages with the roles {roles}: {cause}"
            ) from cause
        return str(text)

    def closing(self) -> str:
        """What it writes after an assistant's words; "" when it cannot be told."""
        said = SENTINEL.format(0)
        try:
            turns = [ChatTurn("user", "x"), ChatTurn("assistant", said)]
            return self.render(turns, generate=False).partition(said)[2]
        except GenerationError:
            return ""

    def _tries_switch(self) -> bool:
        asked = [ChatTurn("user", SENTINEL.format(0))]
        rendered = []
        try:
            for value in (True, False):
                self._switches = dict.fromkeys(SWITCHES, value)
                rendered.append(self.render(asked, generate=True))
        except GenerationError:
            return False
        finally:
            self._switches = {}
        return rendered[0] != rendered[1]

    def _trims_content(self) -> bool:
        spaced = f" {SENTINEL.format(0)} "
        try:
            return spaced not in self.render([ChatTurn("user", spaced)], generate=False)
        except GenerationError:
            return False

    def _forgets_thinking(self) -> bool:
        thought, said = SENTINEL.format(1), SENTINEL.format(2)
        try:
            text = self.render(
                [
                    ChatTurn("user", SENTINEL.format(0)),
                    ChatTurn("assistant", f"{THINK_BEGIN}\n{thought}\n{THINK_END}\n\n{said}"),
                    ChatTurn("user", SENTINEL.format(3)),
                ],
                generate=True,
            )
        except GenerationError:
            return False
        return said in text and thought not in text


def no_switch(key: str, thinking: bool, folder: str) -> str:
    """The line that says that a template cannot do what was asked for."""
    where = f" of {folder}" if folder else ""
    return (
        f"{key}={str(thinking).lower()}, but the chat template{where} has no switch "
        f"{SWITCHES[0]}: leave {key} out, or use a model whose template has it (Qwen3 and its like)"
    )


def with_sentinels(messages: list[ChatTurn]) -> list[ChatTurn]:
    """The same roles, each content a numbered sentinel."""
    return [ChatTurn(m.role, SENTINEL.format(i)) for i, m in enumerate(messages)]
