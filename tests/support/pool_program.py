"""One program in the style of the reference's released pools, and what wins it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class PoolProgram:
    """One program, and the actions that earn a return of 1 on a seed."""

    source: str
    wins: Callable[[int], list[str]]
    lost: tuple[str, float] = (r"\boxed{no such answer}", 0.0)
    """An action and the reward it earns at once."""
    profile: str = "compute"


def box(value: object) -> str:
    return f"\\boxed{{{value}}}"
