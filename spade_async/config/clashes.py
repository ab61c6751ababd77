"""Values that are each allowed and cannot go together; `schema.py` asks, this answers."""

from __future__ import annotations

from typing import Protocol


class Bounds(Protocol):
    """What is asked of the section [async]."""

    @property
    def staleness(self) -> int | None:
        """The shorthand."""

    @property
    def bounds(self) -> tuple[int, int]:
        """Both bounds, with the shorthand applied."""


DEFAULTS = {"agent_bound": 4, "designer_bound": 8}
"""A bound at its default does not count as set."""


def staleness_clash(section: Bounds) -> str | None:
    """What contradicts the shorthand `async.staleness`, or None."""
    if section.staleness is None:
        return None
    for (key, default), wanted in zip(DEFAULTS.items(), section.bounds, strict=True):
        value = getattr(section, key)
        if value not in (default, wanted):
            return (
                f"async.staleness={section.staleness} sets async.{key}={wanted}, but async.{key}="
                f"{value} is set as well: leave one of the two keys out"
            )
    return None


def betas_problem(betas: tuple[float, float]) -> str | None:
    """What AdamW would refuse, or None."""
    if all(0.0 <= beta < 1.0 for beta in betas):
        return None
    return f"learner.betas={list(betas)}: each must be >= 0 and < 1"


def skill_window_clash(per_window: int, window: int) -> str | None:
    """What is wrong with `designer.skills_per_window` and `designer.skill_window`, or None."""
    if per_window > 0 and window == 0:
        return (
            f"designer.skills_per_window={per_window} needs windows, but designer.skill_window="
            f"{window}: set it to the designer groups of a window, or leave both out"
        )
    if window > 0 and per_window > window:
        return (
            f"designer.skills_per_window={per_window} is more than the designer.skill_window="
            f"{window} groups of a window: some skills would never be asked for"
        )
    return None
