"""What each message record looks like on the wire, read once from its annotations."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spade_async.transport.messages import MESSAGES, Message

Check = Callable[[Any], bool]
_SCALARS: frozenset[type] = frozenset({str, int, float, bool, type(None)})


class PlainField(NamedTuple):
    """How to tell whether a value may be in a field."""

    types: frozenset[type]
    """Exact types that need no further look: most values are settled here."""
    check: Check
    type_name: str
    """As it stands in the record."""


@dataclass(frozen=True, slots=True)
class RecordSpec:
    """Field names of one record, plain ones with a type check, array ones with an element type."""

    record: type[Message]
    plain: Mapping[str, PlainField]
    arrays: Mapping[str, np.dtype[Any]]
    kinds: tuple[tuple[str, str], ...]
    """Name and element type of each array as they stand on the wire, in order."""


def _record_spec(record: type[Message]) -> RecordSpec:
    hints = typing.get_type_hints(record)
    plain: dict[str, PlainField] = {}
    arrays: dict[str, np.dtype[Any]] = {}
    for field in fields(record):
        hint = hints[field.name]
        element = _element(hint)
        if element is not None:
            arrays[field.name] = element
        else:
            plain[field.name] = PlainField(_exact(hint), _check(hint), str(field.type))
    kinds = tuple((name, dtype.str[1:]) for name, dtype in arrays.items())
    return RecordSpec(record, plain, arrays, kinds)


def _element(hint: Any) -> np.dtype[Any] | None:
    """The element type of an ``NDArray[...]`` hint, None for any other hint."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    scalar: Any
    if origin is NDArray:  # from numpy 2.5 on NDArray is a type alias that stays unexpanded
        scalar = args[0]
    elif origin is np.ndarray:
        scalar = typing.get_args(args[1])[0]
    else:
        return None
    element: np.dtype[Any] = np.dtype(scalar)
    return element


def _exact(hint: Any) -> frozenset[type]:
    """Types whose instances are all right by themselves."""
    if hint is Any:
        return _SCALARS
    if hint is float:
        return frozenset({float, int})
    if hint in _SCALARS:
        return frozenset({hint})
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return frozenset(kind for arg in typing.get_args(hint) for kind in _exact(arg))
    return frozenset()


def _check(hint: Any) -> Check:
    """A predicate for the few types that plain fields use."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return is_plain
    if hint is type(None):
        return lambda value: value is None
    if hint is float:
        return lambda value: isinstance(value, float | int) and not isinstance(value, bool)
    if hint is int:
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    if hint in (str, bool):
        return lambda value: isinstance(value, hint)
    if origin in (typing.Union, types.UnionType):
        checks = [_check(arg) for arg in args]
        return lambda value: any(check(value) for check in checks)
    if origin is dict and args == (str, Any):
        return lambda value: isinstance(value, dict) and is_plain(value)
    if origin is list and args == (dict[str, Any],):
        return lambda value: (
            isinstance(value, list) and is_plain(value) and {type(item) for item in value} <= {dict}
        )
    if origin is list:
        check_item = _check(args[0])
        return lambda value: isinstance(value, list) and all(map(check_item, value))
    if origin is dict and args[0] is str:
        check_value = _check(args[1])
        return lambda value: (
            isinstance(value, dict)
            and all(isinstance(key, str) for key in value)
            and all(map(check_value, value.values()))
        )
    raise TypeError(f"message fields cannot be {hint!r}")


def is_plain(value: Any) -> bool:
    """Whether a value is None, bool, int, float, str, or lists and str-keyed dicts of them."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                return False
            if type(item) not in _SCALARS and not is_plain(item):
                return False
        return True
    if isinstance(value, list | tuple):
        # Not `all(...)`: most items are scalars, and a call each is most of the time.
        for item in value:  # noqa: SIM110
            if type(item) not in _SCALARS and not is_plain(item):
                return False
        return True
    return value is None or isinstance(value, str | int | float)


SPECS: Mapping[str, RecordSpec] = {record.__name__: _record_spec(record) for record in MESSAGES}
"""By kind (class name)."""
