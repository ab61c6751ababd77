"""`spade-async config show`: the resolved configuration as TOML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spade_async.config.load import as_dict, resolve
from spade_async.designer.skills import chosen_skills, domain_skills
from spade_async.domain import load_domain
from spade_async.simulate.startup import bound_lines


def as_toml(data: dict[str, Any]) -> str:
    """Sections of plain values as TOML; None is a comment, as TOML has no null."""
    return "\n".join(_tables(data, "")) + "\n"


def _tables(data: dict[str, Any], prefix: str) -> list[str]:
    """Each table with its values, then the tables inside it."""
    lines: list[str] = []
    for section, values in data.items():
        if lines:
            lines.append("")
        lines.append(f"[{prefix}{section}]")
        inner = {key: value for key, value in values.items() if isinstance(value, dict)}
        for key, value in values.items():
            if key in inner:
                continue
            lines.append(f"# {key} is not set" if value is None else f"{key} = {_plain(value)}")
        if inner:
            lines += ["", *_tables(inner, f"{prefix}{section}.")]
    return lines


def _plain(value: Any) -> str:
    """A value as TOML: JSON, but for the tables in a list."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        tables = [", ".join(f"{k} = {json.dumps(v)}" for k, v in item.items()) for item in value]
        return "[" + ", ".join(f"{{ {table} }}" for table in tables) + "]"
    return json.dumps(value)


def show(config: Path, sets: Sequence[str]) -> None:
    """Print the configuration that a run would use; it can be fed back as a file.

    What its staleness bounds will do stands at the end, as comments.

    Raises:
        ConfigError: what the file says is wrong, or a skill that `train` would refuse.
    """
    resolved = resolve(config, sets)
    chosen_skills(resolved.designer.skills, domain_skills(load_domain(resolved.domain.hook)))
    print(as_toml(as_dict(resolved)), end="")
    print()
    for line in bound_lines(resolved):
        print(f"# {line}")
