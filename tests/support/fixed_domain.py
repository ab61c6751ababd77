"""A domain whose designer always writes one program: what a model says does not matter.

Replies of an untrained model then still reach every stage of a design and of an episode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spade_async.domain import ChatTurn, HeldOutItem
from tests.support import environments


def designer_messages(
    *, skill: str, document: str, exemplars: list[dict[str, Any]]
) -> list[ChatTurn]:
    return [ChatTurn("user", f"design {skill}")]


def hint_messages(source: str) -> list[ChatTurn]:
    return [ChatTurn("user", "hint")]


def agent_messages(observation: str, hint: str | None) -> list[ChatTurn]:
    return [ChatTurn("user", observation if hint is None else f"{observation} HINT {hint}")]


def agent_turn(observation: str) -> list[ChatTurn]:
    return [ChatTurn("user", observation)]


def parse_program(reply: str) -> str | None:
    return environments.MULTI_TURN


def parse_action(reply: str) -> str:
    return reply


def labels(source: str) -> dict[str, str]:
    return {}


def seed_environments(seed: int) -> Iterator[str]:
    return iter(())


def held_out(instances_per_level: int) -> list[HeldOutItem]:
    return []


def prepare_model(name: str, seed: int, progress: Callable[[float, str], None]) -> Path | None:
    return None
