"""A codec of one id per character: ids say what they are, so that tests can read prompts."""

from __future__ import annotations

from spade_async.domain import ChatTurn

STOP = 0


def ids(text: str) -> list[int]:
    return [ord(character) for character in text]


def text(tokens: list[int]) -> str:
    return "".join(chr(token) for token in tokens if token != STOP)


class FakeTokens:
    stop_token_ids = (STOP,)

    def encode_prompt(self, messages: list[ChatTurn]) -> list[int]:
        return ids("".join(f"<{m.role}>{m.content}" for m in messages) + "<assistant>")

    def encode_turn(self, messages: list[ChatTurn], after_stop: bool) -> list[int]:
        assert after_stop, "an episode goes on only after a stop token"
        return ids("".join(f"<{m.role}>{m.content}" for m in messages) + "<assistant>")

    def decode(self, tokens: list[int]) -> str:
        return text(tokens)

    def retells(self, reply_ids: object) -> bool:
        return False

    def remembered(self, reply_ids: list[int]) -> list[int]:
        return list(reply_ids)

    def encode_history(self, messages: list[ChatTurn]) -> list[int]:
        raise AssertionError("nothing is told anew")
