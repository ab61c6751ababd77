"""Prompts around a program: for its player, and for the policy that writes a hint. Text only.

Both arms see the same words but for the hint (2.2, 4.8).
"""

from __future__ import annotations

from spade_async.domain import ChatTurn


def agent_messages(observation: str, hint: str | None) -> list[ChatTurn]:
    """See `spade_async.domain.Domain.agent_messages`."""
    shown = observation if hint is None else f"{observation}\n\nHINT: {hint}"
    text = (
        "You are playing a text game. Its present state:\n\n"
        f"{shown}\n\n"
        "Think step by step, then give your next action in \\boxed{}."
    )
    return [ChatTurn("user", text)]


def agent_turn(observation: str) -> list[ChatTurn]:
    """See `spade_async.domain.Domain.agent_turn`."""
    return [ChatTurn("user", observation)]


def hint_messages(source: str) -> list[ChatTurn]:
    """See `spade_async.domain.Domain.hint_messages`."""
    text = (
        "Below is the program of a text game. Write a hint for its player, who sees only what "
        "the game prints.\n"
        "Say in one to three sentences, under 100 words, which idea leads to the win: what to find "
        "out first, how to choose between the actions, or how the answer follows from what is "
        "shown; and in which form an action is given. The hint must hold for every instance of the "
        "game. Speak only of what the player can see; give no concrete answer, no sequence of "
        "actions and no code. Reply with the hint alone, as plain text.\n\n"
        f"```python\n{source.rstrip()}\n```"
    )
    return [ChatTurn("user", text)]
