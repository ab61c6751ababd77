"""Prompts about a program that was written: to repair it, to validate it, to judge a played one.

Replies of the last two end in a boxed yes or no (2.6, 4.9). Who asks decides what a verdict means.
"""

from __future__ import annotations

from collections.abc import Sequence

from spade_async.domain import ChatTurn

MAX_REASON_CHARS = 2000
MAX_JUDGED_TURNS = 5
"""Turns of an episode that the judge sees."""
_MAX_FIRST_CHARS = 500
_MAX_LATER_CHARS = 300

REVIEWER_SYSTEM = (
    "You check small text games written in Python. You look for mistakes that make a game useless, "
    "and for nothing else."
)


def repair_turn(stage: str, reason: str) -> list[ChatTurn]:
    """What is said after a reply whose program was rejected; the next reply is the repaired one.

    Args:
        stage: name of the stage that rejected it, e.g. "reset".
        reason: what was wrong, as noted with the rejection.
    """
    told = reason.strip()[:MAX_REASON_CHARS]
    text = (
        f"That program was run and rejected at the check named {stage}:\n\n{told}\n\n"
        "Find the cause, and look for other places with the same mistake. Keep the game, its rules "
        "and its difficulty; change only what has to change. Answer with the whole corrected "
        "program in one ```python block."
    )
    return [ChatTurn("user", text)]


def validator_messages(source: str) -> list[ChatTurn]:
    r"""Asks whether a program is a usable game; a reply ends in ``\boxed{yes}`` or a boxed no."""
    text = (
        "Read this game. Its player sees only the texts that reset and step return, and answers "
        "with one action per turn.\n\n"
        f"```python\n{source.rstrip()}\n```\n\n"
        "Reject it only for one of these:\n"
        "1. What is needed to win can neither be seen, nor found out by acting, nor computed.\n"
        "2. A right answer or a winning sequence is not paid, or a wrong one is.\n"
        "3. The game cannot be won within its turn limit.\n"
        "4. A reasonable action makes the program fail.\n"
        "Style, difficulty and taste are no reasons. Say in a few sentences what you found, then "
        "end with \\boxed{yes} if it is usable, or \\boxed{no}."
    )
    return [ChatTurn("system", REVIEWER_SYSTEM), ChatTurn("user", text)]


def judge_messages(
    source: str, observation: str, turns: Sequence[tuple[str, str, float]]
) -> list[ChatTurn]:
    """Asks whether an episode went as the program's rules say; the verdict is boxed.

    Args:
        source: the program.
        observation: the first one.
        turns: (action, observation, reward) of each turn.
    """
    lines = [f"First observation:\n{_short(observation, _MAX_FIRST_CHARS)}"]
    for number, (action, seen, reward) in enumerate(turns[:MAX_JUDGED_TURNS], 1):
        lines.append(
            f"Turn {number}: {_short(action, _MAX_LATER_CHARS)}\n"
            f"reward {reward:g}, observation: {_short(seen, _MAX_LATER_CHARS)}"
        )
    if len(turns) > MAX_JUDGED_TURNS:
        lines.append(f"({len(turns) - MAX_JUDGED_TURNS} more turns)")
    played = "\n\n".join(lines)
    text = (
        f"This game was played.\n\n```python\n{source.rstrip()}\n```\n\n{played}\n\n"
        "Answer for yourself: Did the observations tell the truth about the state? Did each action "
        "have the effect that the rules promise? Was the reward right? Could the player have known "
        "what to do? Did the game end when it had to? Say in a few sentences what you found, then "
        "end with \\boxed{yes} if all is in order, or \\boxed{no}."
    )
    return [ChatTurn("system", REVIEWER_SYSTEM), ChatTurn("user", text)]


def _short(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[:max_chars] + " ..."
