"""Supervised examples of both roles, in exactly the prompts that a run renders.

Designer: a topic word to a program; half the topics are keywords, mostly of the program's own
family, the others random words. Agent: an observation to its answer, half of them with the hint.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

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
DESIGNER_LEVELS = (0.48, 0.30, 0.15, 0.07)
"""Level mix of the designer's lessons: mean 1.8, so that a run has room to move up."""
AGENT_LEVELS = (0.28, 0.30, 0.26, 0.16)
"""Level mix of the agent's lessons."""
HINT_SHARE = 0.5
"""Share of the agent's lessons with the hint."""

_SYLLABLES = ["ab", "al", "an", "ar", "be", "ca", "co", "da", "de", "do", "el", "en", "er", "es", "fi", "fo", "ge", "ha", "he", "il", "in", "ing", "ion", "is", "it", "ka", "la", "le", "li", "lo", "ma", "me", "mo", "na", "ne", "no", "ol", "on", "or", "pa", "pe", "pro", "qu", "ra", "re", "ri", "ro", "sa", "se", "so", "st", "ta", "te", "th", "ti", "to", "tor", "tu", "un", "ur", "ve", "vi", "wa", "xy"]


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
            word = "".join(rng.choices(_SYLLABLES, k=rng.randint(2, 5)))[:MAX_TOPIC_LETTERS]
        yield Lesson(render([ChatTurn("designer", word)]), draw(rng, family, level).source)


def agent_lessons(seed: int) -> Iterator[Lesson]:
    """Endless agent examples of that seed; instance seeds stay below `HELD_OUT_SEED`."""
    rng = random.Random(derive(seed, "nano-agent-lessons"))
    names = tuple(FAMILIES)
    while True:
        program = draw(rng, rng.choice(names), rng.choices(LEVELS, AGENT_LEVELS)[0])
        yield agent_lesson(program, rng.randrange(HELD_OUT_SEED), hinted=rng.random() < HINT_SHARE)


def agent_lesson(program: Program, seed: int, *, hinted: bool) -> Lesson:
    """The agent's example for one instance."""
    instance = program.instance(seed)
    hint = instance.hint if hinted else None
    return Lesson(render(agent_messages(instance.observation, hint)), instance.answer)


def text_of(lesson: Lesson) -> str:
    """Prompt, reply and the end token as one text."""
    return lesson.prompt + lesson.reply + v.END
