"""The environment memory's rows in the ledger, and the signatures of all valid environments.

Implements `grounding.entry.MemoryTable`. Every query goes through an index and has a limit, so that
neither adding nor looking up grows with the number of entries.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

import numpy as np

from spade_async.errors import LedgerError
from spade_async.grounding.entry import Entry
from spade_async.grounding.signature import Signature, band_keys
from spade_async.ledger.environments import EnvironmentReads
from spade_async.types import Environment

FIRST_SCHEMA = 3
"""Older ledgers have no such tables; a resume fills them from the environments' estimates."""
NEAR_PER_KEY = 64
"""Of the entries under one band key the newest so many are looked at."""
_COLUMNS = (
    "number, environment_id, skeleton, skill, kind, rank, step, regret, mean_no_hint,"
    " mean_with_hint, win_rate, num_alike, signature"
)


class MemoryReads(EnvironmentReads):
    """Queries about remembered environments."""

    def num_entries(self, kind: str | None = None) -> int:
        """See `MemoryTable`."""
        if self._db.schema < FIRST_SCHEMA:
            return 0
        if kind is None:
            return self._db.number("SELECT COUNT(*) FROM memory")
        return self._db.number("SELECT COUNT(*) FROM memory WHERE kind = ?", (kind,))

    def entry_bounds(self) -> tuple[int, int] | None:
        """See `MemoryTable`."""
        # Two queries: each is one step in the index, both in one would be a scan.
        low = self._db.number("SELECT MIN(number) FROM memory")
        return (low, self._db.number("SELECT MAX(number) FROM memory")) if low else None

    def entry(self, number: int) -> Entry | None:
        """See `MemoryTable`."""
        return self._first("WHERE number = ?", (number,))

    def entry_of(self, environment_id: str, skeleton: str) -> Entry | None:
        """See `MemoryTable`."""
        found = self._first("WHERE environment_id = ?", (environment_id,))
        if found is None and skeleton:
            found = self._first("WHERE skeleton = ? ORDER BY number DESC LIMIT 1", (skeleton,))
        return found

    def entries_near(self, keys: Sequence[int], limit: int) -> list[Entry]:
        """See `MemoryTable`."""
        shared: Counter[int] = Counter()
        for key in keys:
            rows = self._db.rows(
                "SELECT number FROM memory_bands WHERE key = ? ORDER BY number DESC LIMIT ?",
                (key, NEAR_PER_KEY),
            )
            shared.update(row[0] for row in rows)
        found = (self.entry(number) for number, _ in shared.most_common(limit))
        return [entry for entry in found if entry is not None]

    def best_entries(
        self, kind: str, limit: int, *, skill: str | None = None, offset: int = 0
    ) -> list[Entry]:
        """See `MemoryTable`."""
        where, values = ("kind = ?", [kind]) if skill is None else ("skill = ? AND kind = ?",
                                                                    [skill, kind])  # fmt: skip
        return self._entries(
            f"WHERE {where} ORDER BY rank DESC, environment_id LIMIT ? OFFSET ?",
            (*values, limit, offset),
        )

    def crowded_entries(self, skill: str, limit: int) -> list[Entry]:
        """See `MemoryTable`."""
        return self._entries(
            "WHERE skill = ? AND num_alike > 0 ORDER BY num_alike DESC LIMIT ?", (skill, limit)
        )

    def environment_of(self, environment_id: str) -> Environment:
        """See `MemoryTable`.

        Raises:
            LedgerError: the ledger never had it.
        """
        row = self.environment(environment_id)
        if row is None:
            raise LedgerError(f"ledger {self._db.path}: no environment {environment_id!r}")
        return row.environment

    def signature(self, environment_id: str) -> Signature | None:
        """MinHash of an environment's AST features; None when it is not known."""
        row = self._db.row("SELECT block FROM shapes WHERE environment_id = ?", (environment_id,))
        return None if row is None else np.frombuffer(row[0], "<i4")

    def _first(self, clause: str, values: Sequence[object]) -> Entry | None:
        row = self._db.row(f"SELECT {_COLUMNS} FROM memory {clause}", values)
        return None if row is None else _entry(row)

    def _entries(self, clause: str, values: Sequence[object]) -> list[Entry]:
        rows = self._db.rows(f"SELECT {_COLUMNS} FROM memory {clause}", values)
        return [_entry(row) for row in rows]


class MemoryWrites(MemoryReads):
    """Changes of remembered environments; inside a transaction."""

    def add_entry(self, entry: Entry, keys: Sequence[int]) -> int:
        """See `MemoryTable`."""
        # The newest is never dropped but for one that takes its place: numbers only grow.
        number = 1 + self._db.number("SELECT MAX(number) FROM memory")
        block = None if entry.signature is None else entry.signature.astype("<i4").tobytes()
        self._db.execute(
            f"INSERT INTO memory ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number, entry.environment_id, entry.skeleton, entry.skill, entry.kind, entry.rank,
                entry.step, entry.regret, entry.mean_no_hint, entry.mean_with_hint, entry.win_rate,
                entry.num_alike, block,
            ),
        )  # fmt: skip
        if keys:
            self._db.execute_many(
                "INSERT OR IGNORE INTO memory_bands VALUES (?, ?)", [(key, number) for key in keys]
            )
        return number

    def drop_entry(self, number: int) -> None:
        """See `MemoryTable`."""
        entry = self.entry(number)
        if entry is None:
            return
        if entry.signature is not None:
            self._db.execute_many(
                "DELETE FROM memory_bands WHERE key = ? AND number = ?",
                [(key, number) for key in band_keys(entry.signature)],
            )
        self._db.execute("DELETE FROM memory WHERE number = ?", (number,))

    def count_alike(self, number: int) -> None:
        """See `MemoryTable`."""
        self._db.execute("UPDATE memory SET num_alike = num_alike + 1 WHERE number = ?", (number,))

    def add_signature(self, environment_id: str, signature: Signature) -> None:
        """Note the MinHash of an environment's AST features."""
        block = signature.astype("<i4").tobytes()
        self._db.execute("INSERT OR IGNORE INTO shapes VALUES (?, ?)", (environment_id, block))


def _entry(row: sqlite3.Row) -> Entry:
    fields = dict(row)
    block = fields.pop("signature")
    return Entry(**fields, signature=None if block is None else np.frombuffer(block, "<i4"))
