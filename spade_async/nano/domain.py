"""The nano domain: prompts, parsing, labels, seed programs, held-out set (`spade_async.domain`).

Imports no torch; the model is made by a subprocess (`cache.prepare`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spade_async.designer.skills import Skill
from spade_async.domain import ChatTurn, HeldOutItem
from spade_async.nano import vocabulary
from spade_async.nano.families import FAMILIES, LEVELS
from spade_async.nano.grammar import HELD_OUT_SEED, draw
from spade_async.nano.labels import MAX_SOURCE_CHARACTERS, labels
from spade_async.nano.topics import topic
from spade_async.seeds import derive

__all__ = [
    "PROMPT_VERSIONS",
    "agent_messages",
    "agent_turn",
    "designer_messages",
    "held_out",
    "hint_messages",
    "labels",
    "make_tokenizer",
    "parse_action",
    "parse_program",
    "prepare_model",
    "seed_environments",
    "skills",
]

MODEL_NAME = "nano"
"""`model.path` that this domain makes itself."""

PROMPT_VERSIONS = {"designer": "nano/1", "agent": "nano/1", "hint": "nano/1"}
"""Tied to the warm start, which teaches these prompts."""


def skills() -> tuple[Skill, ...]:
    """The one skill of the grammar; it only tells the topics of a document apart."""
    return (Skill("Mathematical Reasoning"),)


def designer_messages(
    *, skill: str, document: str, exemplars: list[dict[str, Any]]
) -> list[ChatTurn]:
    """One turn with the topic word of the document; exemplars are not shown to a 0.9 M model."""
    return [ChatTurn("designer", topic(document, skill))]


def hint_messages(source: str) -> list[ChatTurn]:
    """The program itself under the hinter's role. The warm start does not teach this role."""
    return [ChatTurn("hinter", source[:MAX_SOURCE_CHARACTERS])]


def agent_messages(observation: str, hint: str | None) -> list[ChatTurn]:
    """The observation, and in the hinted arm the hint after it."""
    turns = [ChatTurn("agent", observation)]
    return turns if hint is None else [*turns, ChatTurn("hint", hint)]


def agent_turn(observation: str) -> list[ChatTurn]:
    """A later observation. Programs of the grammar end after one turn; others may not."""
    return [ChatTurn("user", observation)]


def parse_program(reply: str) -> str | None:
    """The reply up to the end marker, or None when it holds no environment class."""
    text = _until_end(reply)
    if len(text) > MAX_SOURCE_CHARACTERS or "class " not in text or "Env:\n" not in text:
        return None
    return None if vocabulary.UNKNOWN in text else text


def parse_action(reply: str) -> str:
    """The reply up to the end marker, without surrounding blanks."""
    return _until_end(reply).strip()


def _until_end(reply: str) -> str:
    return reply.split(vocabulary.END, 1)[0]


def seed_environments(seed: int) -> Iterator[str]:
    """Endless programs of the grammar, families and levels equally likely."""
    rng = random.Random(derive(seed, "nano-seed-environments"))
    names = tuple(FAMILIES)
    while True:
        yield draw(rng, rng.choice(names), rng.choice(LEVELS)).source


def held_out(instances_per_level: int) -> list[HeldOutItem]:
    """`instances_per_level` instances of each level, spread over the families, always the same.

    Constants are reserved ones where a range has room; seeds start at `HELD_OUT_SEED`, and a run
    must not draw instance seeds from there.
    """
    items = []
    names = tuple(FAMILIES)
    for level in LEVELS:
        for i in range(instances_per_level):
            rng = random.Random(derive(0, "nano-held-out", level, i))
            program = draw(rng, names[i % len(names)], level, held_out=True)
            items.append(HeldOutItem(str(level), program.source, HELD_OUT_SEED + i))
    return items


def prepare_model(name: str, seed: int, progress: Callable[[float, str], None]) -> Path | None:
    """Folder of the warm-started nano model of that seed, from the cache or made now.

    Raises:
        ConfigError: the warm start failed; the message has its last line.
    """
    if name != MODEL_NAME:
        return None
    from spade_async.nano.prepare import prepare

    return prepare(seed, progress)


def make_tokenizer(name: str) -> Any | None:
    """The tokenizer of the nano model, which needs no model."""
    if name != MODEL_NAME:
        return None
    from spade_async.nano.tokenizer import build_tokenizer

    return build_tokenizer()
