"""A domain whose model takes for ever (or breaks), for the tests of stopping while it is made."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.support.fixed_domain import (
    agent_messages,
    agent_turn,
    designer_messages,
    held_out,
    hint_messages,
    labels,
    parse_action,
    parse_program,
    seed_environments,
)

__all__ = [
    "agent_messages",
    "agent_turn",
    "designer_messages",
    "held_out",
    "hint_messages",
    "labels",
    "parse_action",
    "parse_program",
    "prepare_model",
    "seed_environments",
]


def prepare_model(name: str, seed: int, progress: Callable[[float, str], None]) -> Path | None:
    if name == "unknown":
        return None
    if name == "broken":
        raise RuntimeError("no data")
    for share in range(1000):
        progress(share / 1000, "step")
        time.sleep(0.1)
    return None
