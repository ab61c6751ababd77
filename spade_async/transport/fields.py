"""What each message record looks like on the wire, read once from its annotations."""

from __future__ import annotations

import functools
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spade_async.transport.messages import MESSAGES, Message

Check = Callable[[Any], bool]
Rule = tuple[int, Any, Any, bool]
"""What a field may hold, for the native codec: bits of its scalars, the rule of a list's items, the
rule of a dict's values (None: no list, no dict), whether it may be any plain value."""
_BITS: Mapping[type, int] = {type(None): 1, bool: 2, int: 4, float: 8, str: 16}
_SCALARS: frozenset[type] = frozenset({str, int, float, bool, type(None)})
_TEXT: frozenset[type] = frozenset({str})
_MOST_SIGNATURES = 4096
"""Combinations of types that are remembered per record; an honest run knows a dozen."""


class PlainField(NamedTuple):
    """How to tell whether a value may be in a field."""

    types: frozenset[type]
    """Exact types that need no further look: most values are settled here."""
    check: Check
    type_name: str
    """As it stands in the record."""
    rule: Rule
    """The same as `check`, for values of exact types."""


class RecordSpec:
    """Field names of one record, plain ones with a type check, array ones with an element type."""

    def __init__(
        self,
        record: type[Message],
        plain: Mapping[str, PlainField],
        arrays: Mapping[str, np.dtype[Any]],
    ) -> None:
        self.record = record
        self.plain = plain
        self.arrays = arrays
        self.kinds = tuple(arrays.items())
        """Name and element type of each array, in order."""
        self.names = (*plain, *arrays)
        self.read_plain = _reader(list(plain))
        """The values of a message's plain fields, in order."""
        self.read_arrays = _reader(list(arrays))
        self._checks = tuple(plain.values())
        self._settled: dict[tuple[type, ...], tuple[int, ...]] = {}
        """By the types of all values: the places that need a look at their contents too."""

    def wrong_field(self, values: Sequence[Any]) -> int | None:
        """Place of the first plain value that may not be in its field; None when all may."""
        signature = tuple(map(type, values))
        looks = self._settled.get(signature)
        if looks is None:
            pairs = enumerate(zip(self._checks, signature, strict=True))
            looks = tuple(place for place, (field, kind) in pairs if kind not in field.types)
            if len(self._settled) < _MOST_SIGNATURES:
                self._settled[signature] = looks
        for place in looks:
            if not self._checks[place].check(values[place]):
                return place
        return None


def _reader(names: list[str]) -> Callable[[Message], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda message: tuple(getattr(message, name) for name in names)


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
            plain[field.name] = PlainField(_exact(hint), _check(hint), str(field.type), _rule(hint))
    return RecordSpec(record, plain, arrays)


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


def _rule(hint: Any) -> Rule:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return 0, None, None, True
    if origin is list:
        return 0, _rule(args[0]), None, False
    if origin is dict:
        return 0, None, _rule(args[1]), False
    if origin in (typing.Union, types.UnionType):
        rules = [_rule(arg) for arg in args]
        inner = [[rule[part] for rule in rules if rule[part] is not None] for part in (1, 2)]
        if max(map(len, inner)) > 1:
            raise TypeError(f"message fields cannot be {hint!r}")
        lists, dicts = (found[0] if found else None for found in inner)
        scalars = functools.reduce(operator.or_, (rule[0] for rule in rules))
        return scalars, lists, dicts, any(rule[3] for rule in rules)
    return sum(_BITS[kind] for kind in _exact(hint)), None, None, False


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
        return _is_list_of_dicts
    if origin is list:
        check_item, item_types = _check(args[0]), _exact(args[0])
        return lambda value: (
            isinstance(value, list)
            and (item_types.issuperset(map(type, value)) or all(map(check_item, value)))
        )
    if origin is dict and args[0] is str:
        check_value, value_types = _check(args[1]), _exact(args[1])
        return lambda value: (
            isinstance(value, dict)
            and _has_text_keys(value)
            and (
                value_types.issuperset(map(type, value.values()))
                or all(map(check_value, value.values()))
            )
        )
    raise TypeError(f"message fields cannot be {hint!r}")


def is_plain(value: Any) -> bool:
    """Whether a value is None, bool, int, float, str, or lists and str-keyed dicts of them."""
    # Types are compared in bulk: most items are scalars, and a call each is most of the time.
    if isinstance(value, dict):
        items = value.values()
        return _has_text_keys(value) and (
            _SCALARS.issuperset(map(type, items)) or all(map(is_plain, items))
        )
    if isinstance(value, list | tuple):
        return _SCALARS.issuperset(map(type, value)) or all(map(is_plain, value))
    return value is None or isinstance(value, str | int | float)


def _has_text_keys(value: Mapping[Any, Any]) -> bool:
    return _TEXT.issuperset(map(type, value)) or all(isinstance(key, str) for key in value)


def _is_list_of_dicts(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    # Not `all(...)`: a call per item is most of the time.
    for item in value:  # noqa: SIM110
        if type(item) is not dict or not is_plain(item):
            return False
    return True


SPECS: Mapping[str, RecordSpec] = {record.__name__: _record_spec(record) for record in MESSAGES}
"""By kind (class name)."""
