"""The default domain: text games for any chat model (`domain.hook = "spade_async.designer.games"`).

Implements every function of `spade_async.domain.Domain`. It has no labels, no seed programs, no
held-out set and no model of its own: those are particular to a family of environments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spade_async.designer import parse
from spade_async.designer.prompt import PROMPT_VERSIONS, design_prompt
from spade_async.designer.prompt_agent import agent_messages, agent_turn, hint_messages
from spade_async.designer.skills import GAME_SKILLS, Skill
from spade_async.domain import ChatTurn, DesignRequest, HeldOutItem

__all__ = [
    "PROMPT_VERSIONS",
    "agent_messages",
    "agent_turn",
    "design_prompt",
    "designer_messages",
    "held_out",
    "hint_messages",
    "labels",
    "parse_action",
    "parse_program",
    "prepare_model",
    "seed_environments",
    "skills",
]


def skills() -> tuple[Skill, ...]:
    """The nine game skills."""
    return GAME_SKILLS


def designer_messages(
    *, skill: str, document: str, exemplars: list[dict[str, Any]]
) -> list[ChatTurn]:
    """The designer's prompt with the defaults of a request; see `design_prompt`."""
    return design_prompt(DesignRequest(skill=skill, document=document, exemplars=tuple(exemplars)))


def parse_program(reply: str) -> str | None:
    """Program text in the designer's reply, or None."""
    return parse.program(reply)


def parse_action(reply: str) -> str:
    """Boxed text of the agent's reply, boxed again; the bare reply when it has no box."""
    return parse.action(reply)


def labels(source: str) -> dict[str, str]:
    """Free programs carry no labels."""
    del source
    return {}


def seed_environments(seed: int) -> Iterator[str]:
    """There is no seed pool."""
    del seed
    return iter(())


def held_out(instances_per_level: int) -> list[HeldOutItem]:
    """There is no held-out set."""
    del instances_per_level
    return []


def prepare_model(name: str, seed: int, progress: Callable[[float, str], None]) -> Path | None:
    """This domain makes no model: `model.path` names a folder."""
    del name, seed, progress
    return None
