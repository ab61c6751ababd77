"""What a program's text says of itself, read in the jail: faults, repairs, imports (design step 3).

The host never parses a program (`contract.py`): `inspector_program.py` does, as a trusted program
in a worker of the jail. A text that crashes the parser gives no finding, which is a value like any.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from spade_async.environment.session import Jail, JailUse, open_session
from spade_async.environment.text import one_line

Rule = Literal["read", "ours", "reference"]
_PIECE_CHARS = 8_000
"""At most 32 kB as UTF-8: an action of the jail may have 64."""
_MOST = 200


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found in one text."""

    error: str | None
    """What the parser says against the text as it came, "line 3: ...", or None."""
    repaired: str | None = None
    """The text that parses; None when nothing was repaired, or nothing had to be."""
    repairs: tuple[str, ...] = ()
    """What was done to it: "fences", "braces"."""
    imports: tuple[str, ...] = ()
    """Modules it cannot do without (guarded imports are left out), in order."""
    missing: tuple[str, ...] = ()
    """Those of them that the jail does not have."""


@functools.cache
def inspector_source() -> str:
    """Text of the trusted program."""
    return Path(__file__).with_name("inspector_program.py").read_text(encoding="utf-8")


async def inspect(
    pool: Jail, source: str, *, rule: Rule = "read", use: JailUse
) -> Inspection | None:
    """Read a text, and repair it by a rule if it does not parse; one session, three calls or more.

    Args:
        pool: the jail.
        source: program text, untrusted; at most `contract.MAX_SOURCE_BYTES`.
        rule: "read" repairs nothing; "ours" doubles the braces of fields that are no expressions
            and blanks stray fences, each only where the parser stops; "reference" does what the
            reference does (2.4 and errata).
        use: account of what it costs in the jail.

    Returns None when the parser did not come through: there is nothing to say.

    Raises:
        SandboxError: the jail failed.
    """
    text = _lines(source)
    pieces = [text[i : i + _PIECE_CHARS] for i in range(0, len(text), _PIECE_CHARS)] or [""]
    async with open_session(pool, inspector_source(), 0, use) as session:
        if not session.loaded.ok or not (await session.reset()).ok:
            return None
        for piece in pieces[:-1]:
            if not (await session.step(f"more {piece}")).ok:
                return None
        reply = await session.step(f"{rule} {pieces[-1]}")
    return _read(reply.observation, text) if reply.ok else None


def _lines(source: str) -> str:
    # As Python counts lines.
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _read(told: str, text: str) -> Inspection | None:
    try:
        answer: dict[str, Any] = json.loads(told)
        error = answer["error"]
        repaired = None
        if answer["edits"]:
            lines = text.split("\n")
            for number, new in answer["edits"]:
                lines[number - 1] = str(new)
            repaired = "\n".join(lines)
        return Inspection(
            error=None if error is None else one_line(str(error), 300),
            repaired=repaired,
            repairs=_names(answer["repairs"]) if repaired is not None else (),
            imports=_names(answer.get("imports", [])),
            missing=_names(answer.get("missing", [])),
        )
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def _names(values: list[Any]) -> tuple[str, ...]:
    return tuple(one_line(str(value), 100) for value in values[:_MOST])
