"""`contract.*`: what a program must be beyond being able to run; see docs/contract.md."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from spade_async.config.section import Section, Share

Check = Literal["imports", "diversity", "reaction", "random_play", "solution"]
ALL_CHECKS: tuple[Check, ...] = ("imports", "diversity", "reaction", "random_play", "solution")


class ContractConfig(Section):
    """What a program must be beyond being able to run."""

    repair: Literal["off", "braces"] = "braces"
    """"braces" doubles the braces of f-string fields that are no expressions and blanks stray
    fences in programs that do not parse; such a design is marked `repaired`."""
    checks: tuple[Check, ...] = Field(ALL_CHECKS, max_length=5)
    """Which further checks a program must pass: "imports" (all it imports is there), "diversity"
    (seeds differ), "reaction" (actions matter), "random_play" (random actions seldom win),
    "solution" (its solution() wins). With run.compat "reference" there are none."""
    imports: tuple[str, ...] = Field((), max_length=1000)
    """Modules that the check "imports" lets through, e.g. ["random", "math"]; an empty list lets
    everything through that the jail has."""
    random_plays: int = Field(20, ge=1, le=1000)
    """Episodes of random actions for the check "random_play"."""
    random_success: Share = 0.15
    """A program that random actions win more often than this is rejected."""
