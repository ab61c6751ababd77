"""Batches in the ledger: what is planned, consumed, undone and replayed.

A batch lives: planned -> consumed; after a fall-back to a checkpoint either becomes "replay" (to be
trained again with the same composition) and, once it is planned again, "abandoned".
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping

from spade_async.errors import LedgerError
from spade_async.ledger.connection import Connection
from spade_async.ledger.looks import LookWrites
from spade_async.ledger.rows import BatchRow, BatchSample
from spade_async.transport.messages import StepReport
from spade_async.types import PolicyVersion


class BatchReads:
    """Queries about batches."""

    _db: Connection

    def planned_batch(self) -> BatchRow | None:
        """The batch that was planned and not consumed: it is sent again after a restart."""
        row = self._db.row("SELECT * FROM batches WHERE state = 'planned' ORDER BY ordinal LIMIT 1")
        return None if row is None else self._batch(row)

    def replay_queue(self) -> list[BatchRow]:
        """Undone batches still to be trained again, in the order of their steps."""
        rows = self._db.rows("SELECT * FROM batches WHERE state = 'replay' ORDER BY step, ordinal")
        return [self._batch(row) for row in rows]

    def unfinished_batches(self) -> list[BatchRow]:
        """What a resume trains before anything new: the planned batch, then the replay queue.

        `state` tells which is which: "planned" is planned again under its ordinal (and its
        `replays`), "replay" under a new one with ``replays=batch.ordinal``.
        """
        planned = self.planned_batch()
        return ([] if planned is None else [planned]) + self.replay_queue()

    def batch(self, ordinal: int) -> BatchRow | None:
        """One batch with its composition."""
        row = self._db.row("SELECT * FROM batches WHERE ordinal = ?", (ordinal,))
        return None if row is None else self._batch(row)

    def batches(self) -> list[BatchRow]:
        """All batches by ordinal."""
        return [self._batch(row) for row in self._db.rows("SELECT * FROM batches ORDER BY ordinal")]

    def _batch(self, row: sqlite3.Row) -> BatchRow:
        samples = self._db.rows(
            "SELECT sample_id, group_id, advantage, staleness FROM batch_samples"
            " WHERE ordinal = ? ORDER BY position",
            (row["ordinal"],),
        )
        return BatchRow(
            ordinal=row["ordinal"],
            branch=row["branch"],
            step=row["step"],
            state=row["state"],
            samples=tuple(BatchSample(*sample) for sample in samples),
            replays=row["replays"],
        )


class BatchWrites(BatchReads, LookWrites):
    """Changes of batches; inside a transaction."""

    _is_full: bool
    """Whether the present transaction is a full one; set by the writer."""

    def plan_batch(
        self,
        ordinal: int,
        branch: int,
        step: int,
        samples: Iterable[BatchSample],
        *,
        replays: int | None = None,
    ) -> None:
        """Fix the composition of a step before it is sent.

        Planning the same ordinal again (a resume sends it under a new branch) replaces the plan.

        Args:
            ordinal: of the version that the step makes: last ordinal + 1.
            branch: with `step`, the version that the step makes.
            step: see `branch`.
            samples: rows in the order of the message.
            replays: ordinal of the undone batch that this one repeats.

        Raises:
            LedgerError: another batch is planned; the ordinal was consumed; a sample is unknown,
                trained, or reserved by another batch.
        """
        rows = tuple(samples)
        other = self._db.row(
            "SELECT ordinal, state FROM batches WHERE state = 'planned' AND ordinal != ?"
            " OR ordinal = ? AND state != 'planned'",
            (ordinal, ordinal),
        )
        if other is not None:
            raise self._error(f"cannot plan batch {ordinal}: batch {other[0]} is {other[1]}")
        if replays is not None:
            changed = self._db.execute(
                "UPDATE batches SET state = 'abandoned' WHERE ordinal = ? AND state IN"
                " ('replay', 'abandoned')",
                (replays,),
            )
            if changed != 1:
                raise self._error(f"batch {replays} is not one to be replayed")
        self._db.execute("DELETE FROM batch_samples WHERE ordinal = ?", (ordinal,))
        self._db.execute("DELETE FROM batches WHERE ordinal = ?", (ordinal,))
        self._refuse_unusable([row.sample_id for row in rows])
        self._db.execute(
            "INSERT INTO batches (ordinal, branch, step, state, replays)"
            " VALUES (?, ?, ?, 'planned', ?)",
            (ordinal, branch, step, replays),
        )
        self._db.execute_many(
            "INSERT INTO batch_samples VALUES (?, ?, ?, ?, ?, ?)",
            [
                (ordinal, position, row.sample_id, row.group_id, row.advantage, row.staleness)
                for position, row in enumerate(rows)
            ],
        )

    def consume_batch(
        self,
        ordinal: int,
        report: StepReport,
        wall_unix_s: float,
        metrics: Mapping[str, float] | None = None,
    ) -> bool:
        """Record a finished step in the present transaction, which must be a full one.

        The batch is consumed, its samples and groups are trained, version and step are added. A
        step that was not applied (`report.applied` False) consumes its batch as well.

        Args:
            ordinal: of the planned batch.
            report: of the learner, for the branch and step of the plan.
            wall_unix_s: now.
            metrics: kept with the step; default `report.metrics`.

        Returns:
            False when this batch was consumed before (a repeated report): nothing changes.

        Raises:
            LedgerError: not planned, another version, other samples, or a sample trained before.
        """
        self._need_full("consume_batch")
        plan = self.batch(ordinal)
        version = PolicyVersion(report.branch, report.step)
        if plan is None or plan.state not in ("planned", "consumed"):
            raise self._error(f"batch {ordinal} is {plan.state if plan else 'not planned'}")
        if (plan.branch, plan.step) != version:
            raise self._error(
                f"report of {version} is not of batch {ordinal} ({plan.branch}.{plan.step})"
            )
        if plan.state == "consumed":
            return False
        if sorted(report.sample_ids) != sorted(row.sample_id for row in plan.samples):
            raise self._error(f"report of {version} names other samples than batch {ordinal}")
        marked = self._db.execute(
            "UPDATE samples SET trained_ordinal = ?, unused_reason = NULL WHERE trained_ordinal"
            " IS NULL AND sample_id IN (SELECT sample_id FROM batch_samples WHERE ordinal = ?)",
            (ordinal, ordinal),
        )
        if marked != len(plan.samples):
            raise self._error(
                f"batch {ordinal}: {len(plan.samples) - marked} samples are unknown or were trained"
            )
        self._db.execute(
            "UPDATE groups SET state = 'trained' WHERE group_id IN"
            " (SELECT group_id FROM batch_samples WHERE ordinal = ?)",
            (ordinal,),
        )
        self._db.execute(
            "UPDATE batches SET state = 'consumed', applied = ?, quarantine = ?,"
            " consumed_unix_s = ? WHERE ordinal = ?",
            (report.applied, report.quarantine, wall_unix_s, ordinal),
        )
        self._db.execute(
            "INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, 0)",
            (
                version.packed,
                ordinal,
                report.digest,
                report.location,
                report.checkpoint,
                wall_unix_s,
            ),
        )
        kept = dict(report.metrics if metrics is None else metrics)
        self._db.execute(
            "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?)",
            (ordinal, report.step, wall_unix_s, json.dumps(kept)),
        )
        self.add_learned(ordinal, report.token_logprobs, report.token_weights)
        return True

    def undo_after(self, ordinal: int) -> list[BatchRow]:
        """Fall back to the version with that ordinal: undo every consumption after it.

        Samples are untrained again, their groups ready, those versions abandoned; the batches, and
        a planned one, keep their composition and wait in `replay_queue`, which is returned.
        In the present transaction, which must be a full one.
        """
        self._need_full("undo_after")
        self._db.execute(
            "UPDATE samples SET trained_ordinal = NULL WHERE trained_ordinal > ?", (ordinal,)
        )
        self._db.execute(
            "UPDATE groups SET state = 'ready' WHERE state = 'trained' AND group_id IN"
            " (SELECT s.group_id FROM batch_samples s JOIN batches b USING (ordinal)"
            "  WHERE b.ordinal > ? AND b.state = 'consumed')",
            (ordinal,),
        )
        self._db.execute("UPDATE versions SET is_abandoned = 1 WHERE ordinal > ?", (ordinal,))
        self._db.execute(
            "UPDATE batches SET state = 'replay' WHERE ordinal > ?"
            " AND state IN ('planned', 'consumed')",
            (ordinal,),
        )
        return self.replay_queue()

    def abandon_replay(self, ordinal: int) -> None:
        """Give up an undone batch (all its samples were marked unused)."""
        changed = self._db.execute(
            "UPDATE batches SET state = 'abandoned' WHERE ordinal = ? AND state = 'replay'",
            (ordinal,),
        )
        if changed != 1:
            raise self._error(f"batch {ordinal} is not one to be replayed")

    def _refuse_unusable(self, sample_ids: list[str]) -> None:
        if len(set(sample_ids)) != len(sample_ids):
            raise self._error("a sample is twice in one batch")
        for sample_id in sample_ids:
            row = self._db.row(
                "SELECT trained_ordinal, (SELECT b.ordinal FROM batch_samples s"
                "  JOIN batches b USING (ordinal) WHERE s.sample_id = ?"
                "  AND b.state IN ('planned', 'replay')) FROM samples WHERE sample_id = ?",
                (sample_id, sample_id),
            )
            if row is None:
                raise self._error(f"sample {sample_id!r} was never recorded")
            if row[0] is not None:
                raise self._error(f"sample {sample_id!r} was trained at ordinal {row[0]}")
            if row[1] is not None:
                raise self._error(f"sample {sample_id!r} is in batch {row[1]} already")

    def _need_full(self, what: str) -> None:
        if not self._is_full:
            raise self._error(f"{what} needs `with ledger.transaction(full=True)`")

    def _error(self, text: str) -> LedgerError:
        return LedgerError(f"ledger {self._db.path}: {text}")
