"""The domain of the SmolLM2 runs: programs of the nano grammar, in the prompts of a chat model.

Seed programs, labels and the held-out set are the nano domain's, so that levels mean the same. The
prompts are short: on a CPU every token costs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spade_async.designer import parse
from spade_async.domain import ChatTurn
from spade_async.nano.domain import held_out, labels, seed_environments, skills
from spade_async.nano.topics import topic

__all__ = [
    "PROMPT_VERSIONS",
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
    "skills",
]

MODEL_NAME = "smollm2"
"""`model.path` that this domain makes itself."""

PROMPT_VERSIONS = {"designer": "smollm2/1", "agent": "smollm2/1", "hint": "smollm2/1"}
"""Tied to the warm start, which teaches these prompts."""

# Without a system turn the model's template adds one of its own, which is longer.
_DESIGNER = ChatTurn("system", "You write small puzzles in Python.")
_AGENT = ChatTurn("system", "You solve puzzles. Say the answer only.")


def designer_messages(
    *, skill: str, document: str, exemplars: list[dict[str, object]]
) -> list[ChatTurn]:
    """The topic word of the document; exemplars are not shown, the warm start teaches the form."""
    del exemplars
    return [_DESIGNER, ChatTurn("user", f"Write a puzzle about: {topic(document, skill)}")]


def hint_messages(source: str) -> list[ChatTurn]:
    """The program, asked for a hint. The warm start does not teach this."""
    return [ChatTurn("user", f"{source}\nGive a short hint for this puzzle.")]


def agent_messages(observation: str, hint: str | None) -> list[ChatTurn]:
    """The observation, and in the hinted arm the hint below it."""
    shown = observation if hint is None else f"{observation}\nHint: {hint}"
    return [_AGENT, ChatTurn("user", shown)]


def agent_turn(observation: str) -> list[ChatTurn]:
    """A later observation. Programs of the grammar end after one turn; others may not."""
    return [ChatTurn("user", observation)]


def parse_program(reply: str) -> str | None:
    """The program in the reply, fenced or bare, or None."""
    return parse.program(reply)


def parse_action(reply: str) -> str:
    """The first line of the reply."""
    return reply.strip().partition("\n")[0].strip()


def prepare_model(name: str, seed: int, progress: Callable[[float, str], None]) -> Path | None:
    """Folder of the warm-started SmolLM2 of that seed, from the cache or made now.

    Raises:
        ConfigError: the package is missing, or the warm start failed.
    """
    if name != MODEL_NAME:
        return None
    from spade_async.nano.prepare import prepare_by
    from spade_async.smollm2 import cache
    from spade_async.smollm2.convert import find_package

    size = cache.Size()
    if cache.find(seed, size) is None:
        find_package()  # said at once, and not by a child
    arguments = ["--seed", str(seed), *size.arguments()]
    return prepare_by(
        MODEL_NAME,
        "spade_async.smollm2",
        arguments,
        progress,
        lambda: cache.find(seed, size),
    )
