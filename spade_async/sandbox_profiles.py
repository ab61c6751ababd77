"""Profiles of the jail by name: the built-in ones, and those of a user's TOML file.

A profile is one table; what its keys mean is documented in the record (`sandbox_profile_record`).
What a profile never does is to weaken a layer: it adds system calls of named tiers, packages, and
room.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade_async.sandbox_interpreter import examine
from spade_async.sandbox_profile_record import JOINED, Profile, nearest

__all__ = [
    "Profile", "ProfileCheck", "builtin_profiles", "check_profile", "load_profiles", "profile",
]  # fmt: skip

_EMPTY = {f.name: f.default for f in dataclasses.fields(Profile) if f.name != "name"}
_KEYS = (*_EMPTY, "extends")
_OTHER_NAMES = {"imports": "packages", "modules": "packages"}
"""What the keys are called elsewhere: the policy of a pool says `imports`."""


@dataclass(frozen=True, slots=True)
class ProfileCheck:
    """What came of trying a profile's interpreter and packages."""

    profile: str
    ok: bool
    detail: str
    remedy: str = ""
    """What to do; "" when it is ok."""


def profile(which: str | Profile) -> Profile:
    """A profile by name, or the record itself.

    Args:
        which: name of a built-in profile, "path/to/file.toml:name" for one of a user's file, or a
            record.

    Raises:
        ValueError: no such profile; names the nearest one.
    """
    if isinstance(which, Profile):
        return which
    if not isinstance(which, str):
        raise ValueError(f"profile {which!r}: pass a name or a Profile")
    if which.endswith(".toml"):
        names = ", ".join(load_profiles(which)) or "none yet"
        raise ValueError(
            f"profile {which!r}: names a file; add one of its profiles, "
            f'"{which}:NAME" (in it: {names})'
        )
    path, colon, name = which.rpartition(":")
    known = load_profiles(path) if colon else builtin_profiles()
    if name not in known:
        place = f" in {path}" if colon else ""
        raise ValueError(f"profile {name!r}: no such profile{place}; {nearest(name, known)}")
    return known[name]


@functools.cache
def builtin_profiles() -> Mapping[str, Profile]:
    """The profiles that come with the package, by name."""
    text = importlib.resources.files("spade_async").joinpath("profiles/builtin.toml").read_text()
    return _resolved(tomllib.loads(text), {}, "profiles/builtin.toml")


def load_profiles(path: str | os.PathLike[str]) -> dict[str, Profile]:
    """Profiles of a user's TOML file, one per table; they may extend built-in ones.

    Raises:
        ValueError: the file cannot be read, or a table in it cannot be used: unknown key, value out
            of range, unknown or circular `extends`, the name of a built-in profile.
    """
    try:
        tables = tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise ValueError(f"profiles in {path}: {cause}") from None
    return _resolved(tables, builtin_profiles(), str(path))


def check_profile(which: Profile) -> ProfileCheck:
    """Start the profile's interpreter and import its packages there. A bad pair is a value."""
    found = examine(which.python or sys.executable, which.packages)
    return ProfileCheck(which.name, found.ok, found.detail, found.remedy)


def _resolved(
    tables: Mapping[str, Any], others: Mapping[str, Profile], where: str
) -> dict[str, Profile]:
    done: dict[str, Profile] = {}
    for name in tables:
        if name in others:
            raise ValueError(f"profile {name!r} in {where}: is built in; choose another name")
        _resolve(name, tables, others, where, (), done)
    return {name: done[name] for name in tables}


def _resolve(
    name: str,
    tables: Mapping[str, Any],
    others: Mapping[str, Profile],
    where: str,
    below: tuple[str, ...],
    done: dict[str, Profile],
) -> Profile:
    """One profile with all that it extends; `below` are the profiles that led here."""
    if name in others or name in done:
        return others[name] if name in others else done[name]
    if name in below:
        circle = " -> ".join((*below[below.index(name) :], name))
        raise ValueError(f"profile {name!r} in {where}: extends itself: {circle}")
    if name not in tables:
        hint = nearest(name, [*tables, *others])
        raise ValueError(f"profile {below[-1]!r} in {where}: extends {name!r}, unknown: {hint}")
    table = tables[name]
    if not isinstance(table, Mapping):
        raise ValueError(
            f"{where}: {name}={table!r} is outside any profile: put it under a [table]"
        )
    for key in table:
        if key not in _KEYS:
            hint = f"use {_OTHER_NAMES[key]!r}" if key in _OTHER_NAMES else nearest(key, _KEYS)
            raise ValueError(f"profile {name!r} in {where}: unknown key {key!r}: {hint}")
    bases = table.get("extends", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise ValueError(f"profile {name!r} in {where}: extends={bases!r}: name one or several")
    values: dict[str, Any] = {}
    for base in bases:
        record = _resolve(base, tables, others, where, (*below, name), done)
        _lay_over(
            values, {k: getattr(record, k) for k in _EMPTY if getattr(record, k) != _EMPTY[k]}
        )
    own = {key: value for key, value in table.items() if key != "extends"}
    _lay_over(values, own)
    try:
        done[name] = Profile(name, **values)
    except ValueError as cause:
        raise ValueError(f"{cause} (in {where})") from None
    return done[name]


def _lay_over(values: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Lists are joined, anything else is replaced."""
    for key, value in new.items():
        if key in JOINED and isinstance(value, (list, tuple)):
            value = (*values.get(key, ()), *value)
        values[key] = value
