"""Token ids of a scripted run: the first id of a prompt or a reply says what it is.

A reply's ids carry the program or the action itself, so that text and length are independent: a
program of ten lines may have a thousand tokens. Implements `agent.prompt.TokenCodec`.
"""

from __future__ import annotations

from collections.abc import Sequence

from spade_async.agent.prompt import Said
from spade_async.domain import ChatTurn
from spade_async.engine import scripted_domain as domain
from spade_async.engine.scripted_programs import RIGHT, WRONG, Program

STOP_ID = 0
WORD_ID = 1
"""Every word but the first of a prompt, every token but the first of a reply."""
PROMPT_IDS = {
    domain.DESIGN: 2, domain.PLAIN: 3, domain.HINTED: 4, domain.ASK_HINT: 5, domain.TURN: 6,
}  # fmt: skip
ACTION_IDS = {RIGHT: 10, WRONG: 11}
NO_PROGRAM_ID = 12
"""A reply without a program."""
HINT_ID = 13
PROGRAM_ID = 100
"""Plus the code of the program."""

_TEXTS = {number: action for action, number in ACTION_IDS.items()}
_TEXTS |= {NO_PROGRAM_ID: "there is nothing here", HINT_ID: "it is not the left one"}


class ScriptedCodec:
    """Text to ids and back, without a model."""

    stop_token_ids = (STOP_ID,)

    def encode_prompt(self, messages: list[ChatTurn]) -> list[int]:
        """The id of the first word, then one id per word."""
        return self._encode(messages)

    def encode_turn(self, messages: list[ChatTurn], after_stop: bool) -> list[int]:
        """The same for a later turn."""
        del after_stop
        return self._encode(messages)

    def retells(self, reply_ids: Sequence[int]) -> bool:
        """Never: there is no template."""
        del reply_ids
        return False

    def remembered(self, reply_ids: Sequence[int]) -> list[int]:
        """All of it."""
        return list(reply_ids)

    def encode_history(self, messages: Sequence[ChatTurn | Said]) -> list[int]:
        """As `encode_prompt`, without replies."""
        return self._encode([m for m in messages if isinstance(m, ChatTurn)])

    def decode(self, ids: list[int]) -> str:
        """The program or action that the first id stands for."""
        if not ids:
            return ""
        first = int(ids[0])
        if first >= PROGRAM_ID:
            return Program.of_code(first - PROGRAM_ID).source
        return _TEXTS.get(first, "")

    def _encode(self, messages: list[ChatTurn]) -> list[int]:
        words = " ".join(message.content for message in messages).split()
        return [PROMPT_IDS.get(words[0], WORD_ID), *[WORD_ID] * (len(words) - 1)]
