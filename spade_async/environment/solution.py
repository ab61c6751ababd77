r"""From the text of `solution()` to the actions it stands for (design step 3). Pure and bounded.

What a solution says is free text in the reference's pools: an answer, boxed actions in a row, a
list, or prose. Only what can be read for sure may cost a program its place.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

MOST_ACTIONS = 200
_BOX = "\\boxed{"
MOST_CHARS = 4000
"""The harness cuts a solution here: a longer one is not of the harness."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LETTERS = re.compile(r"[A-Za-z]{2,}")
_MOST_WORDS = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """Ways to play a solution."""

    ways: tuple[tuple[str, ...], ...]
    """Sequences of actions, most likely first."""
    is_certain: bool
    """Whether one of them must win if the solution is right; False of prose."""


def read_solution(text: str, *, single_turn: bool) -> Reading:
    """The actions in a solution's text.

    * boxed texts are actions in their order; of a single-turn program the last one alone counts;
    * a JSON list of strings is a sequence of actions, and so are several short lines;
    * what is too long, or holds a lone surrogate, cannot be played and says nothing;
    * any other text is one answer, offered boxed and bare. It is certain for a single-turn program
      unless it reads like a sentence (more than four words of letters).
    """
    text = text.strip()
    if not text or len(text) > MOST_CHARS:
        return Reading((), False)
    reading = _read(text, single_turn=single_turn)
    # A text, or JSON in it, can spell lone surrogates, which no call of the jail takes.
    if any(map(_SURROGATE.search, (action for way in reading.ways for action in way))):
        return Reading((), False)
    return reading


def _read(text: str, *, single_turn: bool) -> Reading:
    boxes = boxed_texts(text)
    if boxes:
        row = tuple(f"{_BOX}{box}}}" for box in boxes)
        return Reading((row[-1:],) if single_turn else (row,), True)
    row = _listed(text) or _lines(text)
    if row and not single_turn:
        return Reading((tuple(f"{_BOX}{item}}}" for item in row), row), True)
    is_sentence = len(_LETTERS.findall(text)) > _MOST_WORDS or "\n" in text
    return Reading(((f"{_BOX}{text}}}",), (text,)), single_turn and not is_sentence)


def boxed_texts(text: str) -> list[str]:
    """Contents of all closed boxes, in order; a box within a box is part of its text."""
    found: list[str] = []
    at = 0
    while len(found) < MOST_ACTIONS:
        start = text.find(_BOX, at)
        if start < 0:
            break
        depth = 1
        at = start + len(_BOX)
        while at < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        if depth:
            break
        found.append(text[start + len(_BOX) : at - 1].strip())
    return found


def _lines(text: str) -> tuple[str, ...]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not 2 <= len(lines) <= MOST_ACTIONS:
        return ()
    is_short = all(len(_LETTERS.findall(line)) <= _MOST_WORDS for line in lines)
    return tuple(lines) if is_short else ()


def _listed(text: str) -> tuple[str, ...]:
    if not text.startswith("["):
        return ()
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    return tuple(str(item) for item in items[:MOST_ACTIONS]) if isinstance(items, list) else ()
