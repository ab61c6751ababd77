"""Supervised examples of both roles, in exactly the prompts that a run renders.

Designer: a topic word to a program; half the topics are keywords, mostly of the program's own
family, the others random words. Agent: an observation to its answer, half of them with the hint.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from spade_async.domain import ChatTurn
from spade_async.nano import vocabulary as v
from spade_async.nano.chat import render
from spade_async.nano.domain import agent_messages
from spade_async.nano.families import FAMILIES, LEVELS
from spade_async.nano.grammar import HELD_OUT_SEED, Program, draw
from spade_async.nano.topics import KEYWORDS, MAX_TOPIC_LETTERS
from spade_async.seeds import derive

KEYWORD_SHARE = 0.5
"""Share of designer prompts whose topic is a keyword of some family."""
OWN_FAMILY_SHARE = 0.7
"""Share of keyword prompts whose program is of the keyword's family."""
DESIGNER_LEVELS = (0.40, 0.30, 0.19, 0.11)
"""Level mix of the designer's lessons: mean 2.0, about 1.8 once sharpened; room to move up."""
EASY_LEVELS = (0.80, 0.20, 0.0, 0.0)
"""Level mix of the agent's first lessons: short ones, learned in few of them."""
AGENT_LEVELS = (0.26, 0.32, 0.26, 0.16)
"""Level mix that the agent's lessons move to."""
HINT_SHARE = 0.5
"""Share of the agent's lessons with the hint."""

_CONSONANTS, _VOWELS = "bcdfghklmnprstvw", "aeiou"


@dataclass(frozen=True, slots=True)
class Lesson:
    """One example: the policy is taught `reply` (the end token follows it) after `prompt`."""

    prompt: str
    reply: str


def designer_lessons(seed: int) -> Iterator[Lesson]:
    """Endless designer examples of that seed."""
    rng = random.Random(derive(seed, "nano-designer-lessons"))
    names = tuple(FAMILIES)
    while True:
        family = rng.choice(names)
        level = rng.choices(LEVELS, DESIGNER_LEVELS)[0]
        if rng.random() < KEYWORD_SHARE:
            about = family if rng.random() < OWN_FAMILY_SHARE else rng.choice(names)
            word = rng.choice(KEYWORDS[about])
        else:
            word = _any_word(rng)
        yield Lesson(render([ChatTurn("designer", word)]), draw(rng, family, level).source)


def _any_word(rng: random.Random) -> str:
    """A made-up word of 3 to `MAX_TOPIC_LETTERS` letters, in place of any word of a document."""
    syllables = [
        rng.choice(_CONSONANTS) + rng.choice(_VOWELS) + rng.choice(("", "n", "r", "s", "t"))
        for _ in range(rng.randint(2, 4))
    ]
    return "".join(syllables)[:MAX_TOPIC_LETTERS]


def agent_lessons(seed: int, ramp: int) -> Iterator[Lesson]:
    """Endless agent examples of that seed; instance seeds stay below `HELD_OUT_SEED`.

    Args:
        seed: of all choices.
        ramp: lessons over which the level mix moves from `EASY_LEVELS` to `AGENT_LEVELS`.
    """
    rng = random.Random(derive(seed, "nano-agent-lessons"))
    names = tuple(FAMILIES)
    for i in count():
        share = min(1.0, i / max(1, ramp))
        mix = [(1 - share) * e + share * a for e, a in zip(EASY_LEVELS, AGENT_LEVELS, strict=True)]
        program = draw(rng, rng.choice(names), rng.choices(LEVELS, mix)[0])
        yield agent_lesson(program, rng.randrange(HELD_OUT_SEED), hinted=rng.random() < HINT_SHARE)


def agent_lesson(program: Program, seed: int, *, hinted: bool) -> Lesson:
    """The agent's example for one instance."""
    instance = program.instance(seed)
    hint = instance.hint if hinted else None
    return Lesson(render(agent_messages(instance.observation, hint)), instance.answer)


def text_of(lesson: Lesson) -> str:
    """Prompt, reply and the end token as one text."""
    return lesson.prompt + lesson.reply + v.END
