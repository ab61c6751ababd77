"""Supervised examples of both roles in the prompts of `domain`, from the nano grammar.

A few hundred are enough for a pretrained model: it learns the form of the programs and that an
answer stands alone, not what is right.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from spade_async.domain import ChatTurn
from spade_async.nano.families import FAMILIES, LEVELS
from spade_async.nano.grammar import HELD_OUT_SEED, draw
from spade_async.nano.topics import KEYWORDS
from spade_async.seeds import derive
from spade_async.smollm2 import domain

LEVEL_MIX = (0.6, 0.25, 0.1, 0.05)
"""Of levels 1 to 4: what a model of this size solves now and then."""
HINT_SHARE = 0.5
"""Share of the agent's lessons with the hint."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One example: the policy is taught `reply` (the end token follows it) after the turns."""

    turns: tuple[ChatTurn, ...]
    reply: str


def designer_lessons(seed: int) -> Iterator[Lesson]:
    """Endless programs under a keyword of their family."""
    rng = random.Random(derive(seed, "smollm2-designer-lessons"))
    names = tuple(FAMILIES)
    while True:
        family = rng.choice(names)
        program = draw(rng, family, rng.choices(LEVELS, LEVEL_MIX)[0])
        turns = domain.designer_messages(
            skill="Mathematical Reasoning", document=rng.choice(KEYWORDS[family]), exemplars=[]
        )
        yield Lesson(tuple(turns), program.source)


def agent_lessons(seed: int) -> Iterator[Lesson]:
    """Endless answers; instance seeds stay below `HELD_OUT_SEED`."""
    rng = random.Random(derive(seed, "smollm2-agent-lessons"))
    names = tuple(FAMILIES)
    while True:
        program = draw(rng, rng.choice(names), rng.choices(LEVELS, LEVEL_MIX)[0])
        instance = program.instance(rng.randrange(HELD_OUT_SEED))
        hint = instance.hint if rng.random() < HINT_SHARE else None
        turns = domain.agent_messages(instance.observation, hint)
        yield Lesson(tuple(turns), instance.answer)
