"""`docs/configuration.md`: every key of the schema with its type, range, default and meaning.

The page is made from the schema (`python -m spade_async.config.reference > docs/configuration.md`);
a test holds the two equal.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from spade_async.config.load import MAY_CHANGE_ON_RESUME
from spade_async.config.schema import Config

_PREFACE = """\
Every key of a configuration. This page is made from the schema
(`python -m spade_async.config.reference > docs/configuration.md`); a test holds the two equal.

A value comes from a TOML file, then from `--set section.key=value`; there is no other source. A
file may begin with `extends = "other.toml"` (relative to itself): that file is read first. An
unknown key or a value out of range ends the command with one line per problem. `spade-async config
show CONFIG` prints what a run would use. A default of "-" means that the key is not set.
"""

_RANGE = {"ge": ">= {}", "gt": "> {}", "le": "<= {}", "lt": "< {}"}


def page() -> str:
    """`docs/configuration.md`, whole."""
    lines = ["# Configuration", "", *_PREFACE.splitlines(), ""]
    changeable = ", ".join(f"`{key}`" for key in sorted(MAY_CHANGE_ON_RESUME))
    lines += [
        f"On a resume only these may differ from the first start: {changeable}.",
        "All others, `--set` included, have to be given again as they were.",
    ]
    for name, model in _sections(Config, ""):
        lines += ["", f"## {name}", "", _one_line(model.__doc__), ""]
        lines += ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [_row(name, key, field) for key, field in _values(model)]
    return "\n".join(lines) + "\n"


def _sections(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            dotted = f"{prefix}{field.alias or name}"
            yield dotted, inner
            yield from _sections(inner, f"{dotted}.")


def _values(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            yield field.alias or name, field


def _row(section: str, key: str, field: FieldInfo) -> str:
    default = "-" if field.default is None else f"`{_plain(field.default)}`"
    value = " ".join([_type(field.annotation), *_ranges(field)])
    cells = (f"`{section}.{key}`", value, default, _one_line(field.description))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _plain(value: Any) -> str:
    return json.dumps(value)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _type(annotation: Any) -> str:
    """A type in a user's words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(inner[0])
    if origin is Literal:
        return ", ".join(f"`{_plain(choice)}`" for choice in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(one) for one in inner if one is not types.NoneType)
    if origin is tuple:
        if isinstance(inner[0], type) and issubclass(inner[0], BaseModel):
            return f"list of {{{', '.join(inner[0].model_fields)}}}"
        # (float, float) is a pair, (str, ...) a list of any length
        return f"list of {_type(inner[0])}s"
    return {bool: "true or false", int: "integer", float: "number", str: "string"}[annotation]


def _ranges(field: FieldInfo) -> list[str]:
    """Bounds of a number; of texts and lists the bounds are for the messages."""
    found = []
    for limit in field.metadata:
        for name, form in _RANGE.items():
            bound = getattr(limit, name, None)
            if bound is not None:
                found.append(form.format(_number(bound)))
    return [", ".join(found)] if found else []


def _number(bound: float) -> str:
    """With thousands set apart; the end of 64 bits as a power."""
    if isinstance(bound, int):
        return "2^63" if bound == 2**63 else f"{bound:,}"
    return f"{bound:,.0f}" if bound.is_integer() else f"{bound:g}"


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
