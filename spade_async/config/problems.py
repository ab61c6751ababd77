"""Sentences about a configuration that cannot be used: which key, which value, what is allowed."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from spade_async.config.size import WORDS

Origins = Mapping[str, str]
"""Dotted key -> where it was written, e.g. "configs/nano.toml" or "--set"."""

_MAX_VALUE_CHARS = 80

RENAMED = {"learner.tis_cap": "learner.correction.cap"}
"""Keys that had another name once."""


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Fields of a section under the names a user writes (the alias where there is one)."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The section a field holds, or None when it holds a plain value."""
    annotation = field.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def unknown_keys(model: type[BaseModel], data: Mapping[str, Any], where: str) -> list[str]:
    """One sentence per key that the schema does not know, with the nearest known key.

    Args:
        model: section that `data` should fill.
        data: parsed TOML at that depth.
        where: file name or "--set", named in the sentence.
    """
    return list(_unknown(model, data, where, prefix=""))


def _unknown(
    model: type[BaseModel], data: Mapping[str, Any], where: str, prefix: str
) -> Iterator[str]:
    known = fields_by_key(model)
    for key, value in data.items():
        field = known.get(key)
        if field is None:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            renamed = RENAMED.get(f"{prefix}{key}")
            if renamed is not None:
                hint = f'it is "{renamed}" now'
            elif near:
                hint = f'did you mean "{prefix}{near[0]}"?'
            else:
                hint = f"known here: {', '.join(sorted(known))}"
            yield f'unknown key "{prefix}{key}": {hint} (in {where})'
            continue
        section = section_of(field)
        if section is not None and isinstance(value, Mapping):
            yield from _unknown(section, value, where, f"{prefix}{key}.")


def type_problems(
    model: type[BaseModel], data: Mapping[str, Any], origins: Origins, prefix: str = ""
) -> list[str]:
    """One sentence per value that would be read as something else: true as 1, "yes" as true."""
    found: list[str] = []
    for key, field in fields_by_key(model).items():
        value, dotted = data.get(key), f"{prefix}{key}"
        section = section_of(field)
        if section is not None:
            if isinstance(value, Mapping):
                found += type_problems(section, value, origins, f"{dotted}.")
            continue
        kinds = typing.get_args(field.annotation) or (field.annotation,)
        if not set(kinds) <= {int, float, bool, type(None)} or _is_read_by_us(field):
            continue
        is_switch = bool in kinds
        if isinstance(value, str) or (value is not None and isinstance(value, bool) != is_switch):
            found.append(f"{dotted}={value!r}: must be {allowed(field)}{_origin(dotted, origins)}")
    return found


def _is_read_by_us(field: FieldInfo) -> bool:
    """Whether a function of ours makes the value of what is written, e.g. of "2GB"."""
    return any(callable(getattr(rule, "func", None)) for rule in field.metadata)


def value_problem(model: type[BaseModel], error: ErrorDetails, origins: Origins) -> str:
    """One sentence for one pydantic error: key, value, what is allowed, where it was written."""
    location = [str(part) for part in error["loc"]]
    if not location or error["type"] == "value_error":  # the sentence of a check of ours
        message = error["msg"]
        return message.removeprefix("Value error, ")
    key, field = _find(model, location)
    where = _origin(key, origins)
    value = repr(error["input"])
    if len(value) > _MAX_VALUE_CHARS:
        value = value[:_MAX_VALUE_CHARS] + "..."
    rule = allowed(field) if field is not None else error["msg"]
    return f"{key}={value}: must be {rule}{where}"


def _find(model: type[BaseModel], location: list[str]) -> tuple[str, FieldInfo | None]:
    """Dotted key and field of an error location; positions inside a tuple are dropped."""
    field: FieldInfo | None = None
    taken: list[str] = []
    section: type[BaseModel] | None = model
    for part in location:
        if section is None:
            break
        field = fields_by_key(section).get(part) or section.model_fields.get(part)
        if field is None:
            break
        taken.append(field.alias or part)
        section = section_of(field)
    return ".".join(taken or location), field


def _origin(key: str, origins: Origins) -> str:
    while key:
        if key in origins:
            return f" (in {origins[key]})"
        key = key.rpartition(".")[0]
    return ""


def allowed(field: FieldInfo) -> str:
    """What a field accepts, in words: "an integer >= 0 and <= 1000", 'one of "auto", "strict"'."""
    if section_of(field) is not None:
        return "a table of keys"
    kind = _kind(field.annotation)
    if "parse_size" in str(field.metadata) + str(field.annotation):
        kind = WORDS
    limits: list[str] = []
    for rule in _rules(field):
        for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
            bound = getattr(rule, name, None)
            if bound is not None:
                limits.append(f"{sign} {bound}")
        if getattr(rule, "min_length", None):
            limits.append(f"with at least {rule.min_length}")
        pattern = getattr(rule, "pattern", None)
        if pattern is not None:
            limits.append(f"of the form {pattern}")
    return f"{kind} {' and '.join(limits)}".strip()


def _rules(field: FieldInfo) -> list[Any]:
    rules: list[Any] = list(field.metadata)
    for rule in field.metadata:
        if isinstance(rule, annotated_types.GroupedMetadata):
            rules.extend(rule)
    return rules


def _kind(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Literal:
        return "one of " + ", ".join(f'"{choice}"' for choice in arguments)
    if origin is tuple:
        inner = _kind(arguments[0])
        if Ellipsis in arguments:
            return f"a list, each {inner}"
        return f"a list of {len(arguments)}, each {inner}"
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_kind(a) for a in arguments if a is not type(None))
    names = {int: "an integer", float: "a finite number", bool: "true or false", str: "a string"}
    return names.get(annotation, str(annotation))
