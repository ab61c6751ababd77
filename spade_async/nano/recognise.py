"""From text back to a `Program`: which texts are programs of the grammar, without running any.

Stricter than the jail: a program that works but that the grammar cannot write is not recognised. So
the share of recognised texts is a lower bound of validity. Bounded regular expressions only.
"""

from __future__ import annotations

import re

from spade_async.nano.families import ALPHABET, FAMILIES, Family
from spade_async.nano.grammar import HINTS, Program
from spade_async.nano.labels import MAX_SOURCE_CHARACTERS

_N = r"(\d{1,4})"
_ITEMS = re.compile(r"^ {8}x = ([^\n]{1,120})$", re.MULTILINE)
_CLASS = re.compile(r"^class ([A-Z][a-z]{1,20})Env:$", re.MULTILINE)
_GENERATORS = {
    "pair": re.compile(rf"\[r\.randint\({_N}, {_N}\), r\.randint\({_N}, {_N}\)\]"),
    "list": re.compile(rf"\[r\.randint\({_N}, {_N}\) for _ in range\({_N}\)\]"),
    "sample": re.compile(rf"r\.sample\(range\({_N}, {_N}\), {_N}\)"),
    "letters": re.compile(rf'\[r\.choice\("([a-z]{{1,12}})"\) for _ in range\({_N}\)\]'),
    "shuffle": re.compile(rf'r\.sample\("([a-z]{{1,12}})", {_N}\)'),
    "steps": re.compile(
        rf"list\(range\(r\.randint\({_N}, {_N}\), 999, r\.randint\({_N}, {_N}\)\)\)\[:{_N}\]"
    ),
}
_BY_CLASS = {family.class_name: family for family in FAMILIES.values()}


def recognise(source: str) -> Program | None:
    """The program with exactly this text whose instances all work, or None."""
    if len(source) > MAX_SOURCE_CHARACTERS:
        return None
    name, items = _CLASS.search(source), _ITEMS.search(source)
    family = _BY_CLASS.get(name[1]) if name else None
    if family is None or items is None:
        return None
    for generator in family.generators:
        if match := _GENERATORS[generator].fullmatch(items[1]):
            return _of_text(source, family, generator, match.groups())
    return None


def _of_text(
    source: str, family: Family, generator: str, groups: tuple[str, ...]
) -> Program | None:
    constants = _constants(generator, groups)
    if constants is None:
        return None
    lo, hi, n, lo2, hi2 = constants
    for form in range(len(family.forms)):
        for hint in HINTS:
            program = Program(family.name, generator, form, hint, lo, hi, n, lo2, hi2)
            if program.source == source:
                return program
    return None


def _constants(generator: str, groups: tuple[str, ...]) -> tuple[int, int, int, int, int] | None:
    """(lo, hi, n, lo2, hi2) when every instance of them works, else None."""
    if generator in ("letters", "shuffle"):
        letters, n = groups[0], int(groups[1])
        fits = letters == ALPHABET[: len(letters)] and n >= 1
        room = generator == "letters" or n <= len(letters)
        return (0, len(letters), n, 0, 0) if fits and room else None
    numbers = [int(group) for group in groups]
    if generator in ("list", "sample"):
        lo, hi, n = numbers
        works = lo <= hi if generator == "list" else lo < hi and n <= hi - lo
        return (lo, hi, n, 0, 0) if works and n >= 1 else None
    lo, hi, lo2, hi2 = numbers[:4]
    n = numbers[4] if generator == "steps" else 2
    return (lo, hi, n, lo2, hi2) if lo <= hi and 1 <= lo2 <= hi2 and n >= 2 else None
