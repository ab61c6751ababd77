"""Prompts of the default games domain for chat models (design steps 2, 4 and 5). Text only.

Own wording of the reference's prompts (4.4, 4.7, 4.8, 2.2), for the games contract with a hint()
method. The document is wrapped in tags, because its text may itself look like instructions.
"""

from __future__ import annotations

from typing import Any

from spade_async.domain import ChatTurn
from spade_async.environment.contract import CLASS_SUFFIX, MAX_HINT_CHARS

TURN_LIMIT = 4
"""Actions the prompt asks for at most; the default of `agent.max_turns`."""
MAX_EXEMPLAR_CHARS = 2000
MAX_DOCUMENT_CHARS = 20_000

DESIGNER_SYSTEM = (
    "You design small text games in Python for a language model to learn from. Every game is a "
    "complete, correct program with a hidden or computed solution and a fair, automatic reward."
)

_SKELETON = f"""```python
import random


class SomeName{CLASS_SUFFIX}:
    def __init__(self):
        self.turn = 0

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        ...
        return "what the player sees, and how to answer", {{}}

    def step(self, action):
        self.turn += 1
        ...
        return "what the player sees next", reward, terminated, truncated, {{}}

    def hint(self):
        return "how to go about this instance, without its answer"
```"""

_RULES = f"""Rules of the program:
- One class whose name ends in "{CLASS_SUFFIX}", in the form shown below; standard library only.
- All that is random comes from random.Random(seed) in reset. The same seed gives the same game.
- step gets the player's text, e.g. "\\boxed{{7}}". Read the content of the box; any other text,
  also an empty one, is a wrong move and never an error.
- step returns five values. The reward is 1.0 for success and 0.0 otherwise; terminated becomes True
  when the game is won or lost.
- Each action counts as a turn. After at most {TURN_LIMIT} actions the game ends by itself
  (truncated=True when it is neither won nor lost).
- The first observation says what to do and in which form to answer. It never shows the solution.
  Compute the solution from the generated instance; a guess must succeed in less
  than 1 of 100 cases.
- hint() is called after reset. It gives the key idea for this instance in one to three
  sentences (at most {MAX_HINT_CHARS} characters) and the form of the answer, but not the answer.
- No files, network, time, input() or print. Double the braces that an f-string must print.
Before you finish, follow one correct and one wrong sequence of actions through your code."""


def designer_messages(
    *, skill: str, document: str, exemplars: list[dict[str, Any]]
) -> list[ChatTurn]:
    """See `spade_async.domain.Domain.designer_messages`."""
    parts = [f"Write a new text game that trains this skill: {skill}."]
    if document.strip():
        parts.append(
            "Let one idea of this document carry the game. The game must be understandable without "
            "it and must not mention it.\n"
            f"<document>\n{document.strip()[:MAX_DOCUMENT_CHARS]}\n</document>"
        )
    parts += [_RULES, _SKELETON]
    shown = [_exemplar(item) for item in exemplars]
    if shown:
        parts.append(
            "These earlier games had the right difficulty. Be inspired by what makes them work, "
            "and write something different.\n\n" + "\n\n".join(shown)
        )
    parts.append("Answer with the whole program in one ```python block.")
    return [ChatTurn("system", DESIGNER_SYSTEM), ChatTurn("user", "\n\n".join(parts))]


def _exemplar(item: dict[str, Any]) -> str:
    facts = []
    solved, regret = item.get("mean_no_hint"), item.get("regret")
    if isinstance(solved, int | float):
        facts.append(f"mean return without a hint {solved:.2f}")
    if isinstance(regret, int | float):
        facts.append(f"gain from the hint {regret:.2f}")
    head = f"Earlier game ({', '.join(facts)}):" if facts else "Earlier game:"
    source = str(item.get("source", ""))[:MAX_EXEMPLAR_CHARS].rstrip()
    return f"{head}\n```python\n{source}\n```"


def hint_messages(source: str) -> list[ChatTurn]:
    """See `spade_async.domain.Domain.hint_messages`."""
    text = (
        "Below is the program of a text game. Write a hint for its player, who sees only what "
        "the game prints.\n"
        "Say in one to three sentences, under 100 words, which idea leads to the answer and in "
        "which form the answer is given. The hint must hold for every instance of the game. "
        "Speak only of what the player can see; give no concrete answer and no code. Reply with "
        f"the hint alone, as plain text.\n\n```python\n{source.rstrip()}\n```"
    )
    return [ChatTurn("user", text)]


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
