"""Token ids of the agent's prompts (design step 5). Both arms differ by the hint and nothing else.

The codec is taken by its shape; `spade_async.engine.tokens.ChatTokens` is the real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from spade_async.domain import ChatTurn, Domain
from spade_async.environment.contract import MAX_OBSERVATION_CHARS
from spade_async.types import Arm


@dataclass(frozen=True, slots=True)
class Said:
    """A reply of the policy in a conversation that is told anew: its tokens, not its text."""

    token_ids: tuple[int, ...]
    """As sampled, with or without the stop token."""


class TokenCodec(Protocol):
    """Text to token ids and back, by one model's chat template."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a reply."""

    def encode_prompt(self, messages: list[ChatTurn]) -> list[int]:
        """Ids of a whole conversation, ready for the model's reply."""

    def encode_turn(self, messages: list[ChatTurn], after_stop: bool) -> list[int]:
        """Ids that follow a reply: these messages, ready for the next one.

        `after_stop`: the reply ended with a stop token, which is then not written again.
        """

    def retells(self, reply_ids: Sequence[int]) -> bool:
        """Whether the prompt after this reply leaves a part of it out: earlier thinking.

        The conversation is then told anew by `encode_history`, and its next turn is a token
        sequence of its own; otherwise `encode_turn` continues it.
        """

    def remembered(self, reply_ids: Sequence[int]) -> list[int]:
        """Ids of a reply as later prompts have it: no stop token, no thinking. Idempotent."""

    def encode_history(self, messages: Sequence[ChatTurn | Said]) -> list[int]:
        """Ids of a conversation with replies in it, earlier thinking left out."""

    def decode(self, ids: list[int]) -> str:
        """Text of a reply, without its stop token."""


def first_messages(
    domain: Domain, observation: str, *, arm: Arm, hint: str | None
) -> list[ChatTurn]:
    """Messages of the first prompt.

    Raises:
        ValueError: the hinted arm without a hint.
    """
    if arm is Arm.WITH_HINT and not hint:
        raise ValueError("the hinted arm needs a hint")
    shown = hint if arm is Arm.WITH_HINT else None
    return domain.agent_messages(observation[:MAX_OBSERVATION_CHARS], shown)


def next_messages(domain: Domain, observation: str) -> list[ChatTurn]:
    """Messages that carry a later observation."""
    return domain.agent_turn(observation[:MAX_OBSERVATION_CHARS])
