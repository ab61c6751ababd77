"""Skills that a designed game trains, and which of them are asked for now (steps 1 and 2).

The rotation is the reference's (1.2, 1.3): an epoch is a window of designer groups, a window has
some skills in a row, and the groups of the window take them in turn. It follows from the number of
the group alone, so a resumed run goes on where it was.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from spade_async.domain import Domain
from spade_async.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill a game can train."""

    name: str
    description: str = ""
    """One sentence for the designer; "" says nothing."""
    ideas: tuple[str, ...] = ()
    """Concepts a game of this skill could be built on; some are drawn for each prompt."""


GAME_SKILLS: tuple[Skill, ...] = (
    Skill(
        "Pattern Recognition",
        "seeing the rule behind what has been shown, and using it on what has not",
        (
            "a secret code of symbols; each guess is answered by how many are in place and how "
            "many are elsewhere",
            "a grid of tiles grows by a hidden rule; lay the next tiles before the budget is gone",
            "a machine changes words by secret steps; feed it words until its steps are known",
            "signals of several stations are mixed; tune in, and tell which period is whose",
        ),
    ),
    Skill(
        "Logical Deduction",
        "drawing what must be true from partial facts, and asking for the fact that decides most",
        (
            "a theft in a house of many rooms: question guests, some of whom always lie",
            "boxes with true and false labels: open few of them, find the prize",
            "a seating plan under constraints that are revealed only when a seat is tried",
            "cards are held by several players; refusals to show one narrow down the missing set",
        ),
    ),
    Skill(
        "Strategic Planning",
        "choosing moves now for what they make possible later, under a limited budget",
        (
            "towers along a road: where to build and what to improve before each wave comes",
            "a trader between ports whose prices follow a hidden calendar",
            "a camp in winter: gather, repair or scout, with a storm on the way",
            "two workshops and one queue of orders; what is made first decides what can be sold",
        ),
    ),
    Skill(
        "Mathematical Reasoning",
        "turning a situation into numbers and relations, and computing with them without a slip",
        (
            "a lock opens on a number of which only remainders and bounds can be asked",
            "balances and unlabelled weights: find the odd ones in few weighings",
            "tanks of known size and no scale: pour until a given amount stands in one",
            "a dice table with a secret bias: bet, observe, and reach a sum before the chips end",
        ),
    ),
    Skill(
        "Spatial Reasoning",
        "keeping shapes, places and directions in mind while they are moved and turned",
        (
            "push crates to their marks in a store with narrow passages",
            "a dark maze: only the four neighbouring cells are described after each step",
            "fold a sheet and punch it; then say where the holes are when it is opened",
            "a cube is rolled over a board; get the marked face down on the target field",
        ),
    ),
    Skill(
        "Causal Inference",
        "telling causes from company by changing one thing and watching what follows",
        (
            "a circuit with a hidden fault: set inputs, measure, replace the guilty part",
            "a garden where water, light and soil interact; find what makes one plant fail",
            "switches and lamps behind a wall, with delays: learn which switch drives what",
            "an illness in a village; choose whom to test and what to forbid, then name the source",
        ),
    ),
    Skill(
        "Memory Recall",
        "keeping what was seen earlier and bringing it back when it is needed",
        (
            "pairs of cards lie face down and the board turns a quarter after some moves",
            "a guard route is shown once; cross the yard later without being met",
            "guests give names and wishes in passing; serve each the right thing at the end",
            "a long password is told in pieces between other tasks",
        ),
    ),
    Skill(
        "Optimization",
        "getting the most out of limited means, by comparing choices rather than trying all",
        (
            "parcels arrive one by one and must be taken or refused; the van has a size",
            "a tour through depots with opening hours and a tank that must be filled on the way",
            "a furnace with three dials and a noisy gauge: reach a quality with few heats",
            "staff with different skills, jobs that depend on each other, one day",
        ),
    ),
    Skill(
        "Language Understanding",
        "reading exactly what is said, and what follows from how it is said",
        (
            "an island language is learnt from a few signs; then give the right order in it",
            "a will with nested conditions decides who gets what; ask, then divide",
            "an instruction book with exceptions to exceptions runs an odd machine",
            "messages of a witness use pronouns that must be resolved to act rightly",
        ),
    ),
)
"""The nine skills of the games domain, in the reference's order (1.2)."""


def domain_skills(domain: Domain) -> tuple[Skill, ...] | None:
    """Skills the domain knows (its optional function `skills`); None when it takes any name."""
    found = getattr(domain, "skills", None)
    return None if found is None else cast(Callable[[], tuple[Skill, ...]], found)()


def chosen_skills(names: Sequence[str], known: Sequence[Skill] | None) -> tuple[Skill, ...]:
    """The skills of `designer.skills`, in order.

    Underscores and case do not matter: "logical_deduction" is "Logical Deduction".

    Args:
        names: as configured.
        known: skills of the domain; None takes any name as it is.

    Raises:
        ConfigError: a skill that does not exist, or one named twice.
    """
    chosen = [_skill(name, known) for name in names]
    twice = sorted({s.name for s in chosen if chosen.count(s) > 1})
    if twice:
        raise ConfigError(f"designer.skills: {', '.join(map(repr, twice))} is named twice")
    return tuple(chosen)


def _skill(name: str, known: Sequence[Skill] | None) -> Skill:
    plain = " ".join(name.replace("_", " ").split())
    if known is None:
        return Skill(plain)
    by_key = {skill.name.casefold(): skill for skill in known}
    found = by_key.get(plain.casefold())
    if found is not None:
        return found
    near = difflib.get_close_matches(plain.casefold(), by_key, n=1, cutoff=0.5)
    advice = f"did you mean {by_key[near[0]].name!r}? " if near else ""
    names = ", ".join(skill.name for skill in known)
    raise ConfigError(
        f"designer.skills={name!r} is no skill of this domain: {advice}it has {names}"
    )


@dataclass(frozen=True, slots=True)
class Rotation:
    """Which skill each designer group asks for.

    Worked example: 6 skills, `per_window` 3, `window` 24: groups 0 to 23 take skills 0, 1, 2 in
    turn, groups 24 to 47 take 3, 4, 5, then the first three again. With `per_window` 4 the windows
    are 0-3, then 4, 5, 0, 1 (it wraps), then 2-5.
    """

    skills: tuple[Skill, ...]
    per_window: int = 0
    """Skills of one window (k' of the reference); 0, or as many as there are: all."""
    window: int = 0
    """Designer groups of one window; 0: there is one window without an end."""

    def active(self, group: int) -> tuple[Skill, ...]:
        """Skills of the window in which designer group number `group` (from 0) lies."""
        count = len(self.skills)
        if not 0 < self.per_window < count or self.window <= 0:
            return self.skills
        start = (group // self.window * self.per_window) % count
        return tuple(self.skills[(start + i) % count] for i in range(self.per_window))

    def skill(self, group: int) -> Skill:
        """The skill of that group: slot i of a window takes ``active[i mod n]``."""
        active = self.active(group)
        slot = group % self.window if self.window > 0 else group
        return active[slot % len(active)]


def draw_ideas(skill: Skill, count: int, seed: int) -> tuple[str, ...]:
    """Up to `count` different ideas of a skill, the same for the same seed."""
    return tuple(random.Random(seed).sample(skill.ideas, min(count, len(skill.ideas))))
