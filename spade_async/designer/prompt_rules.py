"""What every designed game must keep to, as the prompts say it: rules and skeletons. Text only.

Departs from the reference (4.2-4.4) where it contradicts itself: its skeleton never sets the turn
limit that its own check needs, ours takes and keeps it; its corpus prompt asks for rewards on the
way that are thrown away later, ours speaks of the outcome alone (12.3, point 12).
"""

from __future__ import annotations

from spade_async.environment.contract import CLASS_SUFFIX, MAX_HINT_CHARS

MIN_STEPS = 3
"""Fewest actions that a win should take, where the turn limit allows so many."""


def skeleton(max_turns: int, *, with_hint: bool) -> str:
    """The form of a program, as a fenced block that parses."""
    hint = """

    def hint(self):
        return "how to go about this instance, without its answer\""""
    return f"""```python
import random


class SomeName{CLASS_SUFFIX}:
    def __init__(self, max_turns={max_turns}):
        self.max_turns = max_turns
        self.turn = 0

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        ...
        return "what the player sees, and how to answer", {{}}

    def step(self, action):
        self.turn += 1
        ...
        won, lost = ..., ...
        reward = 1.0 if won else 0.0
        terminated = won or lost
        truncated = not terminated and self.turn >= self.max_turns
        return "what the player sees next", reward, terminated, truncated, {{}}

    def solution(self):
        return "actions that win this instance, one per line"{hint if with_hint else ""}
```"""


def program_rules(max_turns: int, *, with_hint: bool) -> str:
    """Rules of the program, whatever the game."""
    hint = (
        f"- hint() is called after reset. In one to three sentences (at most {MAX_HINT_CHARS} "
        "characters) it gives\n  the key idea for this instance and the form of the answer, but "
        "not the answer.\n"
    )
    return f"""Rules of the program:
- One class whose name ends in "{CLASS_SUFFIX}", in the form shown below; standard library
  only.
- All that is random comes from random.Random(seed) in reset. The same seed gives the same
  game, another seed another one. reset forgets everything of the game before.
- __init__ takes max_turns with a default of {max_turns} and keeps it in self.max_turns.
  Each action counts as a turn; after max_turns of them the game ends by itself, with
  truncated=True when it is neither won nor lost. Everything must be winnable within them.
- step gets the player's text, e.g. "\\boxed{{7}}". Read the content of the box; any other
  text, also an empty one, is a wrong move with an explanation and never an error.
- step returns five values in every branch: text, reward, terminated, truncated, {{}}.
  terminated and truncated are True or False, the text is never empty.
- Only the outcome is paid: 1.0 in the step that wins (with terminated=True), 0.0 in every
  other step. There is no reward for progress; say progress in the text.
- The first observation says what to do and in which form to answer. No observation shows
  the solution; the program computes it from the instance it has drawn.
- solution() is called after reset and never shown to the player. Keep no other method or
  attribute of that name.
{hint if with_hint else ""}- No files, network, time, input() or print.
- Every attribute is set in __init__ or reset; nothing is divided by what can be zero, and
  no list is read beyond its end.
- In an f-string, double the braces that are to be printed: f"\\\\boxed{{{{answer}}}}"."""


LAST_CHECK = """\
Before you answer, play it in your head with seed 0: one sequence of actions that wins, one
that is foolish, and one of nonsense. Each observation must differ as it should, the reward
must come once and for the win alone, and no line may fail. Then answer with the whole
program in one ```python block."""
