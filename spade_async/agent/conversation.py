"""The tokens of one episode as they grow: what is asked next, and what is trained (design step 5).

Whatever was sampled stays the ids that were sampled. A template that leaves earlier thinking out of
later prompts makes the next prompt one that does not continue the last: the conversation is told
anew (replies still as their ids), and the turn becomes a token sequence of its own (6.5). All
sequences of an episode are one sample: one return, one advantage, one row of the ledger.
"""

from __future__ import annotations

from spade_async.agent.prompt import Said, TokenCodec
from spade_async.agent.trace import TraceBuilder
from spade_async.domain import ChatTurn
from spade_async.engine.protocol import Generation
from spade_async.types import TokenTrace


class Conversation:
    """An episode's messages and tokens; call `said` and `seen` in turn."""

    def __init__(self, tokens: TokenCodec, messages: list[ChatTurn]) -> None:
        self._tokens = tokens
        self._messages: list[ChatTurn | Said] = list(messages)
        self._trace = TraceBuilder(tokens.encode_prompt(messages))

    @property
    def ids(self) -> list[int]:
        """The exact prompt of the next request."""
        return self._trace.ids

    def said(self, generation: Generation) -> None:
        """The policy replied."""
        self._trace.add_sampled(generation)
        self._messages.append(Said(tuple(int(token) for token in generation.token_ids)))

    def seen(self, messages: list[ChatTurn]) -> None:
        """The environment answered a reply that ended with a stop token."""
        reply = self._messages[-1]
        assert isinstance(reply, Said), "an observation follows a reply"
        retells = self._tokens.retells(reply.token_ids)
        if retells:
            # Once here, and not again at every later turn: thoughts are long.
            self._messages[-1] = Said(tuple(self._tokens.remembered(reply.token_ids)))
        self._messages += messages
        if retells:
            self._trace.begin(self._tokens.encode_history(self._messages))
        else:
            self._trace.add_given(self._tokens.encode_turn(messages, after_stop=True))

    def trace(self) -> TokenTrace:
        """The tokens so far."""
        return self._trace.build()
