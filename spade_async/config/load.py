"""From a TOML file and dotted overrides to a checked `Config`, and back from a run folder.

A file may begin with ``extends = "other.toml"`` (relative to itself): the other file is read first
and this one laid over it, table by table. Overrides come last. There is no other source of values.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spade_async.config.problems import type_problems, unknown_keys, value_problem
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.errors import ConfigError

MAY_CHANGE_ON_RESUME = frozenset({"train.steps", "run.disk_budget", "run.alert_command"})
"""Dotted keys that do not belong to the identity of a run."""

_OVERRIDE = "--set"


def resolve(path: Path, sets: Sequence[str] = ()) -> Config:
    """Read a configuration file with its ancestors and lay the overrides over it.

    Args:
        path: TOML file, or the folder of a run, whose own configuration is then taken.
        sets: overrides such as ``"learner.lr=3e-4"`` or ``"run.name=first"``; the value is read as
            TOML and taken as a string when it is not TOML.

    Raises:
        ConfigError: unreadable file, unknown key, value out of range; one line per problem.
    """
    problems: list[str] = []
    origins: dict[str, str] = {}
    data = _read_chain(path, (), problems, origins)
    for override in sets:
        layer = _parse_override(override)
        problems += unknown_keys(Config, layer, f"{_OVERRIDE} {override}")
        _lay_over(data, layer, f"{_OVERRIDE} {override}", origins)
    if problems:
        raise ConfigError("\n".join(problems))
    return _checked(data, origins)


def dump_resolved(config: Config, run_dir: Path) -> Path:
    """Write the resolved configuration into a run folder, atomically. Returns its path."""
    target = RunFolder(run_dir).config
    text = json.dumps(as_dict(config), indent=2) + "\n"
    temporary = target.with_suffix(".json.tmp")
    temporary.write_text(text)
    os.replace(temporary, target)
    return target


_BEFORE_THE_KEY: dict[str, dict[str, Any]] = {"regret": {"early_class": False}}
"""What runs did before they had a key, where that is not the key's default."""


def load_resolved(run_dir: Path) -> Config:
    """The configuration that `dump_resolved` wrote.

    Raises:
        ConfigError: it is missing, damaged or of another version of the schema.
    """
    path = RunFolder(run_dir).config
    data = as_written(run_dir)
    for section, keys in _BEFORE_THE_KEY.items():
        if isinstance(data.get(section), dict):
            data[section] = keys | data[section]
    problems = unknown_keys(Config, data, str(path))
    if problems:
        raise ConfigError("\n".join(problems))
    return _checked(data, {key: str(path) for key in data})


def as_written(run_dir: Path) -> dict[str, Any]:
    """The configuration in a run folder, unchecked: its keys may be of another version.

    Raises:
        ConfigError: it is missing or damaged.
    """
    path = RunFolder(run_dir).config
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{run_dir} is not a run folder: it has no {path.name}") from None
    except (OSError, ValueError) as cause:
        raise ConfigError(f"{path} cannot be read: {cause}") from cause
    if not isinstance(data, dict):
        raise ConfigError(f"{path} is damaged: it holds a {type(data).__name__}, not a table")
    return data


def as_dict(config: Config) -> dict[str, Any]:
    """Plain nested values under the names a user writes ("async", not "async_")."""
    plain: dict[str, Any] = config.model_dump(mode="json", by_alias=True)
    return plain


def flatten(config: Config) -> dict[str, Any]:
    """Dotted key -> value, in the order of the schema."""
    return dict(_flat(as_dict(config), ""))


def digest(config: Config) -> str:
    """sha256 (hex) of what makes this run this run; see `MAY_CHANGE_ON_RESUME`."""
    identity = {k: v for k, v in flatten(config).items() if k not in MAY_CHANGE_ON_RESUME}
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def differences(old: Config, new: Config) -> list[str]:
    """One entry ``key: old -> new`` per identity key that differs; empty when digests are equal."""
    before, after = flatten(old), flatten(new)
    return [
        f"{key}: {before.get(key)!r} -> {after.get(key)!r}"
        for key in after
        if key not in MAY_CHANGE_ON_RESUME and before.get(key) != after.get(key)
    ]


def _flat(data: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in data.items():
        if isinstance(value, dict):
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", value))
    return pairs


def _read_chain(
    path: Path, descendants: tuple[Path, ...], problems: list[str], origins: dict[str, str]
) -> dict[str, Any]:
    if path.resolve() in descendants:
        raise ConfigError(f"{path}: extends itself through {' -> '.join(map(str, descendants))}")
    layer = _read_toml(path)
    parent = layer.pop("extends", None)
    problems += unknown_keys(Config, layer, str(path))
    if parent is None:
        data: dict[str, Any] = {}
    elif isinstance(parent, str):
        # Relative to this file, so that a folder of configurations can be moved as a whole.
        chain = (*descendants, path.resolve())
        data = _read_chain(path.parent / parent, chain, problems, origins)
    else:
        raise ConfigError(f"extends={parent!r}: must be the name of a TOML file (in {path})")
    _lay_over(data, layer, str(path), origins)
    return data


def _read_toml(path: Path) -> dict[str, Any]:
    if path.is_dir() and RunFolder(path).config.exists():
        return as_dict(load_resolved(path))
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {path}: try configs/nano.toml") from None
    except IsADirectoryError:
        raise ConfigError(
            f"{path} is a folder and no run folder: name a TOML file, or a run's folder"
        ) from None
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(f"{path} cannot be read: {cause}") from cause
    except tomllib.TOMLDecodeError as cause:
        raise ConfigError(f"{path} is not TOML: {cause}") from cause


def _parse_override(override: str) -> dict[str, Any]:
    key, separator, text = override.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not separator or not all(parts):
        raise ConfigError(f"--set {override}: write it as section.key=value")
    value: Any
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    for part in reversed(parts):
        value = {part: value}
    layer: dict[str, Any] = value
    return layer


def _lay_over(
    data: dict[str, Any],
    layer: dict[str, Any],
    where: str,
    origins: dict[str, str],
    prefix: str = "",
) -> None:
    for key, value in layer.items():
        below = data.get(key)
        dotted = f"{prefix}{key}"
        if isinstance(value, dict) and (below is None or isinstance(below, dict)):
            _lay_over(data.setdefault(key, {}), value, where, origins, f"{dotted}.")
        else:
            data[key] = value
            origins[dotted] = where


def _checked(data: dict[str, Any], origins: dict[str, str]) -> Config:
    problems = type_problems(Config, data, origins)
    if problems:
        raise ConfigError("\n".join(problems))
    try:
        return Config.model_validate(data)
    except ValidationError as invalid:
        lines = [value_problem(Config, error, origins) for error in invalid.errors()]
        raise ConfigError("\n".join(lines)) from None
