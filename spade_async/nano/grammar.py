"""The program grammar of the nano model: programs, their source text, their reference instances.

A program is a small record; `source` renders it as about 18 lines of plain Python in the contract
of games (`reset`, `step`, `hint`), `instance` solves it by the reference rule of its family. The
text itself runs only in the jail.

Held-out data: programs drawn with ``held_out=True`` use constants that training never draws (where
a range has room), and instance seeds from `HELD_OUT_SEED` on. The designer is free to write such a
program itself, so the split by seed is the one that always holds: the warm start draws its seeds
below `HELD_OUT_SEED`, and a run excludes that range.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from spade_async.nano.families import ALPHABET, FAMILIES, Bounds, Family, Items, level_of

HELD_OUT_SEED = 10**9
"""Instance seeds from here on belong to held-out evaluation."""

HINTS = ("first", "two", "but_last", "but_first", "own")
"""Kinds of hint: a prefix of the answer, the answer without a character, the family's own."""

_HINT_TEXT = {
    "first": "self.a[:1]",
    "two": "self.a[:2]",
    "but_last": 'self.a[:-1] + "?"',
    "but_first": '"?" + self.a[1:]',
}
_HEAD = """import random


class {class_name}Env:
    def reset(self, seed=None):
        r = random.Random(seed)
"""
_TAIL = """
    def step(self, action):
        return "done", float(action.strip() == self.a), True, False, {}

    def hint(self):
        return self.h
"""


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of a program: what the agent sees, what is right, what the hint says."""

    observation: str
    answer: str
    hint: str


@dataclass(frozen=True, slots=True)
class Program:
    """One program of the grammar.

    Example: ``Program("sort", "list", 0, "first", lo=1, hi=9, n=4, lo2=0, hi2=0)``.
    """

    family: str
    generator: str
    form: int
    hint: str
    lo: int
    hi: int
    """Upper bound, exclusive for "sample"; length of the alphabet for letters."""
    n: int
    """List length; 2 for pairs."""
    lo2: int
    hi2: int
    """Second range; 0 when there is none."""

    @property
    def level(self) -> int:
        """1 to 4."""
        return level_of(FAMILIES[self.family], hi=self.hi, hi2=self.hi2, n=self.n)

    @property
    def source(self) -> str:
        """The program text."""
        family = FAMILIES[self.family]
        answer, observation = family.forms[self.form]
        hint = family.own_hint if self.hint == "own" else _HINT_TEXT[self.hint]
        lines = [f"x = {self._generator_text()}"]
        if family.indexed:
            lines.append("k = r.randrange(len(x))")
        lines += [f"self.a = {answer}", f"self.h = {hint}", f"return {observation}, {{}}"]
        body = "".join(f"        {line}\n" for line in lines)
        return _HEAD.format(class_name=family.class_name) + body + _TAIL

    def _generator_text(self) -> str:
        lo, hi, n, lo2, hi2 = self.lo, self.hi, self.n, self.lo2, self.hi2
        letters = ALPHABET[:hi]
        return {
            "pair": f"[r.randint({lo}, {hi}), r.randint({lo2}, {hi2})]",
            "list": f"[r.randint({lo}, {hi}) for _ in range({n})]",
            "sample": f"r.sample(range({lo}, {hi}), {n})",
            "letters": f'[r.choice("{letters}") for _ in range({n})]',
            "shuffle": f'r.sample("{letters}", {n})',
            "steps": f"list(range(r.randint({lo}, {hi}), 999, r.randint({lo2}, {hi2})))[:{n}]",
        }[self.generator]

    def instance(self, seed: int) -> Instance:
        """The instance of that seed, solved by the family's reference rule."""
        family = FAMILIES[self.family]
        r = random.Random(seed)
        x = self._items(r)
        k = r.randrange(len(x)) if family.indexed else 0
        solved = family.solve(x, k, self.form)
        answer = solved.answer
        hint = {
            "first": answer[:1],
            "two": answer[:2],
            "but_last": answer[:-1] + "?",
            "but_first": "?" + answer[1:],
            "own": solved.own_hint,
        }[self.hint]
        return Instance(solved.observation, answer, hint)

    def _items(self, r: random.Random) -> Items:
        letters = ALPHABET[: self.hi]
        match self.generator:
            case "pair":
                return [r.randint(self.lo, self.hi), r.randint(self.lo2, self.hi2)]
            case "list":
                return [r.randint(self.lo, self.hi) for _ in range(self.n)]
            case "sample":
                return r.sample(range(self.lo, self.hi), self.n)
            case "letters":
                return [r.choice(letters) for _ in range(self.n)]
            case "shuffle":
                return r.sample(letters, self.n)
            case _:
                start, step = r.randint(self.lo, self.hi), r.randint(self.lo2, self.hi2)
                return list(range(start, 999, step))[: self.n]


def draw(rng: random.Random, family: str, level: int, *, held_out: bool = False) -> Program:
    """A program of that family and level with fresh constants.

    Args:
        rng: source of the choices.
        family: a name in `FAMILIES`.
        level: 1 to 4.
        held_out: take the reserved constants instead of the others.
    """
    spec = FAMILIES[family]
    bounds = spec.bounds[level - 1]
    generator = rng.choice(spec.generators)
    form = rng.randrange(len(spec.forms))
    hint = rng.choice(HINTS)
    n = rng.randint(*bounds.n)
    hi = _upper(rng, bounds.hi, held_out)
    lo, lo2, hi2 = rng.randint(*bounds.lo), 0, 0
    if generator in ("pair", "steps"):
        lo2, hi2 = rng.randint(*bounds.lo2), _upper(rng, bounds.hi2, held_out)
        n = n if generator == "steps" else 2
    elif generator in ("letters", "shuffle"):
        lo = 0
        hi = max(hi, n) if generator == "shuffle" else hi
    elif generator == "sample":
        hi = max(hi + 1, lo + n)
    return Program(family, generator, form, hint, lo, hi, n, lo2, hi2)


def _upper(rng: random.Random, span: tuple[int, int], held_out: bool) -> int:
    """An upper bound of `span`; 2 modulo 5 is for held-out programs where there is room."""
    choices = [v for v in range(span[0], span[1] + 1) if (v % 5 == 2) is held_out]
    return rng.choice(choices) if choices else rng.randint(*span)


__all__ = ["FAMILIES", "HELD_OUT_SEED", "HINTS", "Bounds", "Family", "Instance", "Program", "draw"]
