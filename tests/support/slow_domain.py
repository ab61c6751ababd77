"""A domain whose model takes for ever (or breaks), for the tests of stopping while it is made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spade_async.domain import ChatTurn, HeldOutItem


def designer_messages(
    *, skill: str, document: str, exemplars: list[dict[str, Any]]
) -> list[ChatTurn]:
    return []


def hint_messages(source: str) -> list[ChatTurn]:
    return []


def agent_messages(observation: str, hint: str | None) -> list[ChatTurn]:
    return []


def agent_turn(observation: str) -> list[ChatTurn]:
    return []


def parse_program(reply: str) -> str | None:
    return None


def parse_action(reply: str) -> str:
    return reply


def labels(source: str) -> dict[str, str]:
    return {}


def seed_environments(seed: int) -> Iterator[str]:
    return iter(())


def held_out(instances_per_level: int) -> list[HeldOutItem]:
    return []


def prepare_model(name: str, seed: int, progress: Callable[[float, str], None]) -> Path | None:
    if name == "unknown":
        return None
    if name == "broken":
        raise RuntimeError("no data")
    for share in range(1000):
        progress(share / 1000, "step")
        time.sleep(0.1)
    return None
