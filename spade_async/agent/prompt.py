"""Token ids of the agent's prompts (design step 5). Both arms differ by the hint and nothing else.

The codec is taken by its shape; `spade_async.engine.tokens.ChatTokens` is the real one.
"""

from __future__ import annotations

from typing import Protocol

from spade_async.domain import ChatTurn, Domain
from spade_async.environment.contract import MAX_OBSERVATION_CHARS
from spade_async.types import Arm


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

    def decode(self, ids: list[int]) -> str:
        """Text of a reply, without its stop token."""


def first_prompt(
    tokens: TokenCodec, domain: Domain, observation: str, *, arm: Arm, hint: str | None
) -> list[int]:
    """Ids of the first prompt.

    Raises:
        ValueError: the hinted arm without a hint.
    """
    if arm is Arm.WITH_HINT and not hint:
        raise ValueError("the hinted arm needs a hint")
    shown = hint if arm is Arm.WITH_HINT else None
    return tokens.encode_prompt(domain.agent_messages(observation[:MAX_OBSERVATION_CHARS], shown))


def next_prompt(tokens: TokenCodec, domain: Domain, observation: str) -> list[int]:
    """Ids that carry a later observation after a reply that ended with a stop token.

    They are appended to what was sampled, so that history is never tokenised again.
    """
    messages = domain.agent_turn(observation[:MAX_OBSERVATION_CHARS])
    return tokens.encode_turn(messages, after_stop=True)
