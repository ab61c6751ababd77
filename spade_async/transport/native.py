"""The native codec, told what our records look like.

It does ordinary messages; what it leaves (`None`) `codec` does itself. Besides `sandbox_core` the
only place that imports the compiled module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spade_async import _sandbox_rs
from spade_async.transport.fields import RecordSpec

Caps = tuple[int, int, int, int, int, int]
"""Schema; most bytes of a header, of a block that the checksum covers; most items, ranges; most
bytes of arrays that are gathered natively."""


def message_codec(caps: Caps, specs: Mapping[str, RecordSpec]) -> _sandbox_rs.MessageCodec:
    """A codec for these records.

    Raises:
        ImportError: the compiled module is of an older version than the program.
    """
    if not hasattr(_sandbox_rs, "MessageCodec"):
        raise ImportError(
            f"{_sandbox_rs.__file__} is older than the program (it has no MessageCodec): "
            "build it again, with `pip install -e .` or `maturin develop --release`"
        )
    records = [_record(kind, spec) for kind, spec in specs.items()]
    return _sandbox_rs.MessageCodec(caps, records, object.__new__, np.frombuffer)


def _record(kind: str, spec: RecordSpec) -> dict[str, Any]:
    # Nothing of a record's own runs when the slots are set one by one.
    assert not hasattr(spec.record, "__post_init__"), f"{kind} has a __post_init__"
    assert "__slots__" in vars(spec.record), f"{kind} has no slots"
    return {
        "kind": kind,
        "class": spec.record,
        "reliable": spec.record.reliable,
        "plain": [(name, field.rule) for name, field in spec.plain.items()],
        "arrays": [(name, dtype, dtype.itemsize, _empty(dtype)) for name, dtype in spec.kinds],
        "setters": [getattr(spec.record, name).__set__ for name in spec.names],
    }


def _empty(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    array = np.zeros(0, dtype)
    array.flags.writeable = False
    return array
