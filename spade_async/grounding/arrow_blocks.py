"""Parquet and Arrow files as blocks: row groups of the one, record batches of the other.

Only the columns that can hold the text are read. Needs pyarrow (the extra `corpus`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spade_async.errors import ConfigError
from spade_async.grounding.blocks import ROUND_BYTES, Row, sampled_digest
from spade_async.grounding.document import BadRow
from spade_async.grounding.extras import need
from spade_async.grounding.row_rule import TEXT_KEYS

MAX_GROUP_BYTES = 2 << 30
"""A larger row group would have to be in memory as a whole; it is refused."""
_SLICE_ROWS = 1024


class ParquetFile:
    """One parquet file; a block is a row group."""

    skipped: Sequence[BadRow] = ()

    def __init__(self, path: Path, name: str) -> None:
        """Raises ConfigError: no pyarrow, no parquet, or no column that can hold a text."""
        self._path, self._name = path, name
        parquet = need("pyarrow.parquet", str(path))
        try:
            with parquet.ParquetFile(path) as file:
                self._columns = _columns(path, file.schema_arrow)
                groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
                sizes = [_text_bytes(group, self._columns) for group in groups]
                self._first_rows = _running([group.num_rows for group in groups])
        except (OSError, ValueError) as cause:
            raise _unreadable(path, "parquet", cause) from cause
        largest = max(sizes, default=0)
        if largest > MAX_GROUP_BYTES:
            raise ConfigError(
                f"grounding.corpus: {path} has a row group of {largest} bytes of text, at most "
                f"{MAX_GROUP_BYTES} fit in memory: write it with smaller row groups"
            )
        self.num_blocks = len(sizes)
        self.blocks_per_round = max(1, ROUND_BYTES * len(sizes) // max(1, sum(sizes)))
        self.digest = sampled_digest(path)

    def rows(self, block: int) -> Iterator[Row]:
        """See `Blocks`."""
        parquet = need("pyarrow.parquet", str(self._path))
        number = self._first_rows[block]
        try:
            with parquet.ParquetFile(self._path) as file:
                batches = file.iter_batches(
                    _SLICE_ROWS, row_groups=[block], columns=self._columns, use_threads=False
                )
                for batch in batches:
                    yield from _rows(batch, self._name, number)
                    number += batch.num_rows
        except ValueError as cause:
            raise OSError(f"{self._path}: {cause}") from cause

    def place(self, row_id: str) -> str:
        """See `Blocks`."""
        return f"row {int(row_id.rpartition('#')[2])}"


class ArrowFile:
    """One Arrow file as `datasets` saves it (stream or file format), mapped and not read."""

    skipped: Sequence[BadRow] = ()

    def __init__(self, path: Path, name: str) -> None:
        """Raises ConfigError: no pyarrow, no Arrow file, or no column that can hold a text."""
        self._path, self._name = path, name
        arrow = need("pyarrow", str(path))
        try:
            self._batches: list[Any] = list(_arrow_batches(arrow, path))
            if not self._batches:
                raise ConfigError(f"grounding.corpus: {path} has no rows")
            self._columns = _columns(path, self._batches[0].schema)
        except (OSError, ValueError) as cause:
            raise _unreadable(path, "Arrow", cause) from cause
        self._first_rows = _running([batch.num_rows for batch in self._batches])
        self.num_blocks = len(self._batches)
        size = path.stat().st_size
        self.blocks_per_round = max(1, ROUND_BYTES * self.num_blocks // max(1, size))
        self.digest = sampled_digest(path)

    def rows(self, block: int) -> Iterator[Row]:
        """See `Blocks`."""
        batch, number = self._batches[block], self._first_rows[block]
        for at in range(0, batch.num_rows, _SLICE_ROWS):
            some = batch.slice(at, _SLICE_ROWS).select(self._columns)
            yield from _rows(some, self._name, number + at)

    def place(self, row_id: str) -> str:
        """See `Blocks`."""
        return f"row {int(row_id.rpartition('#')[2])}"


def _arrow_batches(arrow: Any, path: Path) -> Iterator[Any]:
    # Mapped: a batch is a view, and what is not looked at is not read.
    source = arrow.memory_map(str(path))
    with path.open("rb") as file:
        head = file.read(6)
    if head == b"ARROW1":
        reader = arrow.ipc.open_file(source)
        yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        yield from arrow.ipc.open_stream(source)


def _rows(batch: Any, name: str, number: int) -> Iterator[Row]:
    for i, columns in enumerate(batch.to_pylist()):
        yield Row(f"{name}#{number + i}", columns)


def _columns(path: Path, schema: Any) -> list[str]:
    found = [key for key in TEXT_KEYS if key in schema.names]
    if not found:
        raise ConfigError(
            f"grounding.corpus: {path} has no column {' or '.join(TEXT_KEYS)} (it has "
            f"{', '.join(schema.names)[:200]}): rename the one that holds the text"
        )
    return found


def _text_bytes(group: Any, columns: list[str]) -> int:
    chunks = [group.column(i) for i in range(group.num_columns)]
    return sum(c.total_uncompressed_size for c in chunks if c.path_in_schema in columns)


def _running(counts: list[int]) -> list[int]:
    firsts, total = [], 0
    for count in counts:
        firsts.append(total)
        total += count
    return firsts


def _unreadable(path: Path, kind: str, cause: Exception) -> ConfigError:
    return ConfigError(
        f"grounding.corpus: {path} cannot be read as {kind} ({str(cause)[:200]}): is it whole? "
        "A file that is a pointer of large-file storage has to be fetched first"
    )
