"""The domain of a scripted run (`domain.hook = "spade_async.engine.scripted_domain"`).

Prompts begin with a word that tells `scripted_codec` whose turn it is. Programs are those of
`scripted_programs`, the seed pool and the held-out set too. No torch, no model.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spade_async.designer.skills import GAME_SKILLS, Skill
from spade_async.domain import ChatTurn, HeldOutItem
from spade_async.engine.scripted_programs import NUM_NAMES, Program
from spade_async.seeds import derive

DESIGN, PLAIN, HINTED, ASK_HINT, TURN = "design", "plain", "hinted", "ask_hint", "turn"
"""First words of the prompts."""
_HELD_OUT_SEED = 10**9
_LEVELS = ("1", "2")


def skills() -> tuple[Skill, ...]:
    """The nine game skills: a name that a real run refuses is refused here as well."""
    return GAME_SKILLS


def designer_messages(
    *, skill: str, document: str, exemplars: list[dict[str, Any]]
) -> list[ChatTurn]:
    """Prompt of the designer."""
    del document, exemplars
    return [ChatTurn("user", f"{DESIGN} {skill}")]


def hint_messages(source: str) -> list[ChatTurn]:
    """Prompt that asks for a hint."""
    del source
    return [ChatTurn("user", ASK_HINT)]


def agent_messages(observation: str, hint: str | None) -> list[ChatTurn]:
    """First prompt of the agent; the first word tells the arms apart."""
    kind = PLAIN if hint is None else f"{HINTED} {hint}"
    return [ChatTurn("user", f"{kind} {observation}")]


def agent_turn(observation: str) -> list[ChatTurn]:
    """A later observation."""
    return [ChatTurn("user", f"{TURN} {observation}")]


def parse_program(reply: str) -> str | None:
    """The reply is the program; None when it is none of ours."""
    return reply if Program.of_source(reply) is not None else None


def parse_action(reply: str) -> str:
    """The reply is the action."""
    return reply


def labels(source: str) -> dict[str, str]:
    """Family (last digit of the name) and level (1 or 2)."""
    program = Program.of_source(source)
    if program is None:
        return {}
    return {"family": f"f{program.name % 10}", "level": _LEVELS[program.name % 2]}


def seed_environments(seed: int) -> Iterator[str]:
    """Endless valid programs of one turn."""
    for index in itertools.count():
        yield Program(derive(seed, "scripted", index) % NUM_NAMES).source


def held_out(instances_per_level: int) -> list[HeldOutItem]:
    """One program per level."""
    return [
        HeldOutItem(level=level, source=Program(number).source, seed=_HELD_OUT_SEED + i)
        for number, level in enumerate(_LEVELS)
        for i in range(instances_per_level)
    ]


def prepare_model(name: str, seed: int, progress: Callable[[float, str], None]) -> Path | None:
    """A scripted run has no model; the supervisor writes its few bytes."""
    del name, seed, progress
    return None
