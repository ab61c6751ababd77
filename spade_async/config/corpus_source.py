"""One entry of `grounding.corpus` when it is a list: where documents are, and how often they come.

The key stays a string for one corpus. A mixture is a list of tables, for a weight belongs to a
place: two lists of equal length would come apart in an edit, and a string such as "a*2,b" would
need rules for quoting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from spade_async.config.section import Section

CorpusFormat = Literal["auto", "jsonl", "parquet", "arrow", "text"]
"""How documents lie there; "auto" goes by the names of the files."""
MAX_SOURCES = 64
MAX_WEIGHT = 1e9


class CorpusSource(Section):
    """A place with documents."""

    path: str
    """A file, a folder, or one of our own corpora by name."""
    weight: float = 1.0
    """Share of the draws, relative to the other entries."""
    format: CorpusFormat = "auto"


def read_corpus(value: Any) -> Any:
    """`grounding.corpus` as written: a string, or a list of tables, checked here for its messages.

    Raises:
        ValueError: one sentence that names the entry, the value and what is allowed.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple):
        raise ValueError(
            f"grounding.corpus={value!r}: must be a string or a list of tables "
            "{path, weight, format}"
        )
    if not 1 <= len(value) <= MAX_SOURCES:
        raise ValueError(
            f"grounding.corpus has {len(value)} entries: must be 1 to {MAX_SOURCES}, or a string"
        )
    return tuple(_entry(f"grounding.corpus[{i}]", item) for i, item in enumerate(value))


def _entry(key: str, item: Any) -> CorpusSource:
    if isinstance(item, CorpusSource):
        return item
    if not isinstance(item, Mapping):
        raise ValueError(f"{key}={item!r}: must be a table {{path, weight, format}}")
    unknown = sorted(set(item) - set(CorpusSource.model_fields))
    if unknown:
        raise ValueError(f'unknown key "{key}.{unknown[0]}": known here: format, path, weight')
    path, weight, form = item.get("path"), item.get("weight", 1.0), item.get("format", "auto")
    if not isinstance(path, str) or not path:
        raise ValueError(f"{key}.path={path!r}: must be a file, a folder or a corpus of ours")
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    # Weights are added up: the sum has to be finite as well, and to keep the small ones.
    if not is_number or not 0 < weight <= MAX_WEIGHT:
        raise ValueError(
            f"{key}.weight={weight!r}: must be a finite number > 0 and <= {MAX_WEIGHT:g}; leave "
            "the entry out to draw nothing from it"
        )
    if form not in get_args(CorpusFormat):
        allowed = ", ".join(f'"{name}"' for name in get_args(CorpusFormat))
        raise ValueError(f"{key}.format={form!r}: must be one of {allowed}")
    return CorpusSource(path=path, weight=float(weight), format=form)
