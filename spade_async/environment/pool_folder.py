"""A folder of programs as a pool: ``*.py`` files and, if there is one, their index ``pool.json``.

`spade-async export` writes such folders; a folder of programs from elsewhere needs no index. What
cannot be used is skipped, counted and named; the rest is used. Nothing is parsed or run here: a
program that fails is found by the jail (`spade-async env check`, or when it is first played).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spade_async.environment.contract import MAX_SOURCE_BYTES, environment_id, source_problem
from spade_async.environment.text import one_line
from spade_async.errors import ConfigError

INDEX = "pool.json"
MAX_INDEX_BYTES = 1 << 30
_NAMED = 5
"""So many of the skipped are named in one line."""


@dataclass(frozen=True, slots=True)
class PoolProgram:
    """One program and what its index says of it; None where it says nothing."""

    file: str
    source: str
    sha256: str
    environment_id: str
    skill: str | None = None
    hint: str | None = None
    hint_mode: str | None = None
    """"environment": the program's own hint(); otherwise `hint` is the hint of all instances."""
    mean_no_hint: float | None = None
    mean_with_hint: float | None = None
    regret: float | None = None
    licence: str | None = None
    run: str | None = None
    """Run that made it."""


@dataclass(frozen=True, slots=True)
class PoolFolder:
    """What a folder holds."""

    path: Path
    programs: tuple[PoolProgram, ...]
    """By file name."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(file, reason) of what cannot be used, by file name."""
    notes: tuple[str, ...] = field(default=())
    """What is wrong with the index; its programs are used without it."""

    def summary(self) -> str:
        """One line: how many are used, how many are not, the first of them by name."""
        text = f"{self.path}: {len(self.programs)} program(s)"
        if self.skipped:
            named = "; ".join(f"{file}: {reason}" for file, reason in self.skipped[:_NAMED])
            more = len(self.skipped) - _NAMED
            text += f", {len(self.skipped)} skipped: {named}" + (
                f"; and {more} more" if more > 0 else ""
            )
        return "; ".join((text, *self.notes))


def read_pool(folder: str | Path) -> PoolFolder:
    """Read every program of a folder; its sub-folders are not looked at.

    Raises:
        ConfigError: there is no such folder, or nothing in it can be used.
    """
    path = Path(folder)
    try:
        names = sorted(entry.name for entry in os.scandir(path) if entry.name.endswith(".py"))
    except OSError as cause:
        raise ConfigError(
            f"agent.pool={str(folder)!r}: {cause.strerror or cause}; name a folder of programs, "
            "for example one that spade-async export made"
        ) from cause
    facts, notes = _read_index(path / INDEX)
    programs: list[PoolProgram] = []
    skipped: list[tuple[str, str]] = []
    seen: dict[str, str] = {}
    for name in names:
        shown = one_line(name, 200)
        found = _read_program(path / name)
        entry = facts.pop(name, {})
        if isinstance(found, str):
            skipped.append((shown, found))
            continue
        digest, source = found
        stated = entry.get("sha256")
        if isinstance(stated, str) and stated.lower() != digest:
            skipped.append((shown, f"its sha256 is not the one in {INDEX}: it was changed since"))
        elif digest in seen:
            skipped.append((shown, f"the same program as {seen[digest]}"))
        else:
            seen[digest] = shown
            programs.append(_program(name, digest, source, entry))
    skipped += [
        (one_line(name, 200), f"named in {INDEX}, but there is no such file") for name in facts
    ]
    pool = PoolFolder(path, tuple(programs), tuple(sorted(skipped)), tuple(notes))
    if not programs:
        raise ConfigError(
            f"agent.pool={str(folder)!r} holds no program that can be used: "
            + (pool.summary() if skipped else "there is no file *.py in it")
        )
    return pool


def _read_program(path: Path) -> tuple[str, str] | str:
    """(sha256, text) of a file, or why there is none."""
    try:
        # A pipe would be waited for, a device read for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            return "is not a regular file"
        with path.open("rb") as file:
            data = file.read(MAX_SOURCE_BYTES + 1)
    except OSError as cause:
        return f"cannot be read: {cause.strerror or cause}"
    if len(data) > MAX_SOURCE_BYTES:
        return f"is longer than {MAX_SOURCE_BYTES} bytes"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as cause:
        return f"is not UTF-8 text (byte {cause.start})"
    if "\0" in text:
        return "is not text: it holds a NUL"
    problem = source_problem(text)
    return problem if problem is not None else (hashlib.sha256(data).hexdigest(), text)


def _read_index(path: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Entries by file name, and what is wrong with the index."""
    try:
        found = path.stat()
        # As for a program: a pipe would be waited for, a device read for ever.
        if not stat.S_ISREG(found.st_mode):
            return {}, [f"{INDEX} is not a regular file and not used"]
        if found.st_size > MAX_INDEX_BYTES:
            return {}, [f"{INDEX} is larger than {MAX_INDEX_BYTES} bytes and not used"]
        entries = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, []
    except OSError as cause:
        return {}, [f"{INDEX} cannot be read ({cause.strerror or cause}) and is not used"]
    except (ValueError, RecursionError) as cause:
        return {}, [f"{INDEX} is damaged ({one_line(str(cause), 100)}) and not used"]
    if not isinstance(entries, list):
        return {}, [f"{INDEX} is not a list and not used"]
    good = [e for e in entries if isinstance(e, dict) and isinstance(e.get("file"), str)]
    notes = []
    if len(good) < len(entries):
        notes.append(f"{len(entries) - len(good)} entries of {INDEX} name no file and are not used")
    return {entry["file"]: entry for entry in good}, notes


def _program(name: str, digest: str, source: str, entry: dict[str, Any]) -> PoolProgram:
    def text(key: str) -> str | None:
        value = entry.get(key)
        # JSON can spell lone surrogates, which neither a prompt nor the ledger takes.
        return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None

    def number(key: str) -> float | None:
        value = entry.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        try:
            return float(value) if math.isfinite(value) else None
        except OverflowError:  # an integer of more than 308 digits
            return None

    return PoolProgram(
        file=name,
        source=source,
        sha256=digest,
        environment_id=environment_id(source),
        skill=text("skill"),
        hint=text("hint"),
        hint_mode=text("hint_mode"),
        mean_no_hint=number("mean_no_hint"),
        mean_with_hint=number("mean_with_hint"),
        regret=number("regret"),
        licence=text("licence"),
        run=text("run"),
    )
