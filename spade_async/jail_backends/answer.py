"""One answer of a child, or of the core in its place, as the facades read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from spade_async.types import Outcome

Row: TypeAlias = tuple[str, str, float | None, bool, bool, str, float, float | None, int]
"""(outcome, observation, reward, terminated, truncated, detail, wall_s, cpu_s, reply_bytes)."""

CODES = tuple(outcome.value for outcome in Outcome)
"""Outcome strings by their code on the wire; the order of the enumeration is that order."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one call. `outcome` is a string of `spade_async.types.Outcome`."""

    outcome: str
    observation: str = ""
    reward: float | None = None
    """Reward of a step; always finite."""
    terminated: bool = False
    truncated: bool = False
    detail: str = ""
    wall_s: float = 0.0
    cpu_s: float | None = None
    """CPU seconds of the child, read from outside; None where the clock cannot be read."""
    reply_bytes: int = 0

    @property
    def row(self) -> Row:
        """The tuple that the facades unpack."""
        return (
            self.outcome, self.observation, self.reward, self.terminated, self.truncated,
            self.detail, self.wall_s, self.cpu_s, self.reply_bytes,
        )  # fmt: skip


def failed(outcome: Outcome, detail: str, cpu_s: float | None = None) -> Answer:
    """An answer that carries no value."""
    return Answer(outcome.value, detail=detail, cpu_s=cpu_s)
