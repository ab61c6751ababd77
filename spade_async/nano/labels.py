"""Labels of a program text: which family it computes and how hard its constants make it.

Read by bounded regular expressions from what the program does (the answer line and the generator
line), not from what it calls itself. Text only; a source is never parsed as Python here.
"""

from __future__ import annotations

import re

from spade_async.nano.families import FAMILIES, Family, level_of

MAX_SOURCE_CHARACTERS = 4000
"""A longer text has no labels."""

_ANSWER = re.compile(r"^ {8}self\.a = ([^\n]{1,60})$", re.MULTILINE)
_ITEMS = re.compile(r"^ {8}x = ([^\n]{1,120})$", re.MULTILINE)
_NUMBER = r"(\d{1,4})"
_RANDINT = re.compile(rf"r\.randint\({_NUMBER}, {_NUMBER}\)")
_SAMPLE = re.compile(rf"^r\.sample\(range\({_NUMBER}, {_NUMBER}\), {_NUMBER}\)$")
_LENGTH = re.compile(rf"(?:in range\({_NUMBER}\)\]|\", {_NUMBER}\)|\[:{_NUMBER}\])$")

_BY_ANSWER = {answer: family for family in FAMILIES.values() for answer, _ in family.forms}


def labels(source: str) -> dict[str, str]:
    """{"family", "level"} of a program, {} when it is not recognised."""
    if len(source) > MAX_SOURCE_CHARACTERS:
        return {}
    answer, items = _ANSWER.search(source), _ITEMS.search(source)
    family = _BY_ANSWER.get(answer[1]) if answer else None
    if family is None or items is None:
        return {}
    level = _level(family, items[1])
    return {} if level is None else {"family": family.name, "level": str(level)}


def _level(family: Family, items: str) -> int | None:
    """Level from the generator expression; None when the constant that decides is not there."""
    if sample := _SAMPLE.match(items):
        return level_of(family, hi=int(sample[2]), hi2=0, n=int(sample[3]))
    uppers = [int(match[2]) for match in _RANDINT.finditer(items)]
    length = _LENGTH.search(items)
    n = int(next(group for group in length.groups() if group)) if length else len(uppers)
    hi = uppers[0] if uppers else 0
    hi2 = uppers[1] if len(uppers) > 1 else 0
    needs = {"hi": hi, "hi2": hi2, "max": hi, "n": n}[family.measure]
    return level_of(family, hi=hi, hi2=hi2, n=n) if needs else None
