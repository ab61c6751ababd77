"""A domain with a seed pool and a held-out set, for scripted parts: nothing is ever run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from spade_async.designer.games import (
    agent_messages,
    agent_turn,
    designer_messages,
    hint_messages,
    parse_action,
    parse_program,
    prepare_model,
)
from spade_async.domain import HeldOutItem

__all__ = [
    "agent_messages", "agent_turn", "designer_messages", "held_out", "hint_messages", "labels",
    "parse_action", "parse_program", "prepare_model", "seed_environments",
]  # fmt: skip


def labels(source: str) -> dict[str, str]:
    return {"level": "1"}


def seed_environments(seed: int) -> Iterator[str]:
    return (f"class S{(seed + i) % 97}Env:\n    family = 'seed'\n" for i in itertools.count())


def held_out(instances_per_level: int) -> list[HeldOutItem]:
    return [
        HeldOutItem(level=level, source=f"class H{level}Env:\n    pass\n", seed=10**9 + i)
        for level in ("1", "2")
        for i in range(instances_per_level)
    ]
