"""Samples in the ledger and their token traces."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from spade_async.errors import LedgerError
from spade_async.ledger.connection import Connection
from spade_async.ledger.looks import LookWrites
from spade_async.ledger.rows import SampleCounts, SampleRow
from spade_async.ledger.traces import RecentTraces, pack_trace, unpack_trace
from spade_async.types import TokenTrace


class SampleReads:
    """Queries about samples."""

    _db: Connection

    def sample(self, sample_id: str) -> SampleRow | None:
        """One sample."""
        row = self._db.row("SELECT * FROM samples WHERE sample_id = ?", (sample_id,))
        return None if row is None else _sample(row)

    def has_sample(self, sample_id: str) -> bool:
        """Whether it was recorded."""
        return self._db.row("SELECT 1 FROM samples WHERE sample_id = ?", (sample_id,)) is not None

    def samples_of(self, group_id: str) -> list[SampleRow]:
        """Samples of a group in order of arrival (hinted and missing ones too)."""
        rows = self._db.rows(
            "SELECT * FROM samples WHERE group_id = ? ORDER BY number", (group_id,)
        )
        return [_sample(row) for row in rows]

    def iterate_samples(
        self, *, role: str | None = None, purpose: str | None = None
    ) -> Iterator[SampleRow]:
        """All samples in order of arrival, read a page at a time."""
        number = 0
        while True:
            rows = self._db.rows(
                "SELECT * FROM samples WHERE number > :number"
                " AND (:role IS NULL OR role = :role)"
                " AND (:purpose IS NULL OR purpose = :purpose) ORDER BY number LIMIT 2000",
                {"number": number, "role": role, "purpose": purpose},
            )
            if not rows:
                return
            yield from map(_sample, rows)
            number = rows[-1]["number"]

    def trace(self, sample_id: str) -> TokenTrace | None:
        """Token trace of a sample; None when it has none or it was dropped.

        Raises:
            LedgerError: the stored bytes are damaged.
        """
        row = self._db.row("SELECT block FROM traces WHERE sample_id = ?", (sample_id,))
        if row is None:
            return None
        try:
            return unpack_trace(row[0])
        except ValueError as cause:
            raise LedgerError(f"ledger {self._db.path}: trace of {sample_id!r}: {cause}") from cause

    def sample_counts(self) -> SampleCounts:
        """Numbers for the report."""
        row = self._db.row(
            "SELECT COALESCE(SUM(role = 'agent' AND missing_reason IS NULL), 0),"
            " COALESCE(SUM(role = 'designer' AND missing_reason IS NULL), 0),"
            " COALESCE(SUM(role = 'designer' AND missing_reason IS NULL"
            "              AND rejection_stage IS NULL), 0),"
            " COALESCE(SUM(missing_reason IS NOT NULL), 0) FROM samples"
        )
        assert row is not None, "an aggregate always has a row"
        unused = self._db.rows(
            "SELECT unused_reason, COUNT(*) FROM samples WHERE unused_reason IS NOT NULL GROUP BY 1"
        )
        return SampleCounts(
            episodes=row[0],
            designs=row[1],
            valid_designs=row[2],
            missing=row[3],
            unused={reason: count for reason, count in unused},
        )


class SampleWrites(SampleReads, LookWrites):
    """Changes of samples; inside a transaction."""

    _recent: RecentTraces

    def trace(self, sample_id: str) -> TokenTrace | None:
        """See `SampleReads.trace`; the first reading of a new sample needs no query."""
        recent = self._recent.take(sample_id)
        return super().trace(sample_id) if recent is None else recent

    def add_sample(
        self, sample: SampleRow, trace: TokenTrace | None, extra_json: str | None = None
    ) -> bool:
        """Record a sample; False when its id was there already (nothing changes).

        Args:
            sample: `trained_ordinal` and `unused_reason` must be None here.
            trace: kept for samples that will be trained; None otherwise.
            extra_json: overrides ``sample.extra_json``.
        """
        if sample.trained_ordinal is not None or sample.unused_reason is not None:
            raise ValueError("consumption is marked by consume_batch and mark_unused only")
        is_new = self._db.execute(
            f"INSERT OR IGNORE INTO samples ({_COLUMNS}) VALUES ({_MARKS})",
            (
                sample.sample_id,
                sample.group_id,
                sample.role,
                sample.purpose,
                sample.environment_id,
                sample.seed,
                sample.arm,
                sample.index,
                sample.outcome,
                sample.detail,
                sample.episode_return,
                sample.reward,
                sample.rejection_stage,
                sample.missing_reason,
                sample.oldest_ordinal,
                sample.num_tokens,
                sample.num_trained_tokens,
                sample.created_unix_s,
                sample.labels_json,
                sample.extra_json if extra_json is None else extra_json,
            ),
        )
        if is_new and trace is not None:
            self._db.execute(
                "INSERT INTO traces VALUES (?, ?)", (sample.sample_id, pack_trace(trace))
            )
            self._recent.put(sample.sample_id, trace)
        return is_new == 1

    def set_reward(self, sample_id: str, reward: float | None) -> None:
        """Note what a design is paid, once its episodes are in."""
        self._db.execute("UPDATE samples SET reward = ? WHERE sample_id = ?", (reward, sample_id))

    def mark_unused(self, sample_ids: Iterable[str], reason: str) -> int:
        """Say why finished samples will not be trained (e.g. "lost_to_rollback"); how many.

        Trained samples are left alone.
        """
        return self._db.execute_many(
            "UPDATE samples SET unused_reason = ? WHERE sample_id = ? AND trained_ordinal IS NULL",
            [(reason, sample_id) for sample_id in sample_ids],
        )

    def drop_traces(self, before_ordinal: int) -> int:
        """Delete traces of samples trained before that ordinal and of unused ones; how many.

        Those that people look at move aside (`LookWrites.keep_looks`).
        Pass at most the ordinal of the oldest checkpoint one may fall back to: replayed batches
        need their traces.
        """
        self._recent.clear()
        self.keep_looks(_DROPPABLE, before_ordinal)
        return self._db.execute(
            f"DELETE FROM traces WHERE sample_id IN ({_DROPPABLE})", (before_ordinal,)
        )


_COLUMNS = (
    "sample_id, group_id, role, purpose, environment_id, seed, arm, position, outcome, detail,"
    " episode_return, reward, rejection_stage, missing_reason, oldest_ordinal, num_tokens,"
    " num_trained_tokens, created_unix_s, labels_json, extra_json"
)
_DROPPABLE = (
    "SELECT t.sample_id FROM traces t JOIN samples s USING (sample_id)"
    " WHERE s.trained_ordinal < ? OR s.unused_reason IS NOT NULL"
)
_MARKS = ", ".join("?" * 20)


def _sample(row: sqlite3.Row) -> SampleRow:
    values = dict(row)
    del values["number"]
    values["index"] = values.pop("position")
    return SampleRow(**values)
