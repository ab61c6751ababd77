"""The promises of a run, counted: nothing lost, nothing trained twice, nothing too old."""

from __future__ import annotations

from collections.abc import Mapping

from spade_async.ledger.connection import Connection


class Checks:
    """Counts for the report; all but `num_trained` must be 0 in a good run."""

    _db: Connection

    def num_trained(self) -> int:
        """Samples trained in the surviving history."""
        return self._db.number("SELECT COUNT(*) FROM samples WHERE trained_ordinal IS NOT NULL")

    def trained_twice(self) -> int:
        """Samples that stand in more than one consumed batch of the surviving history."""
        return self._db.number(
            "SELECT COUNT(*) FROM (SELECT sample_id FROM batch_samples JOIN batches USING (ordinal)"
            " WHERE state = 'consumed' GROUP BY sample_id HAVING COUNT(*) > 1)"
        )

    def lost(self) -> int:
        """Finished train samples that vanished.

        Their group was trained without them and nothing says why, or a consumed batch names a
        sample whose row is gone or not marked.
        """
        left_out = self._db.number(
            "SELECT COUNT(*) FROM samples s JOIN groups g USING (group_id)"
            " WHERE g.state = 'trained' AND s.purpose = 'train' AND s.trained_ordinal IS NULL"
            " AND s.missing_reason IS NULL AND s.unused_reason IS NULL"
        )
        gone = self._db.number(
            "SELECT COUNT(*) FROM batch_samples r JOIN batches b USING (ordinal)"
            " LEFT JOIN samples s USING (sample_id)"
            " WHERE b.state = 'consumed' AND s.trained_ordinal IS NOT b.ordinal"
        )
        return left_out + gone

    def over_bound(self, bounds: Mapping[str, int]) -> int:
        """Trained samples staler than the bound of their role, e.g. {"agent": 4, "designer": 8}."""
        return sum(
            self._db.number(
                "SELECT COUNT(*) FROM batch_samples r JOIN batches b USING (ordinal)"
                " JOIN samples s USING (sample_id)"
                " WHERE b.state = 'consumed' AND s.role = ? AND r.staleness > ?",
                (role, bound),
            )
            for role, bound in bounds.items()
        )

    def nonfinite_updates(self) -> int:
        """Consumed batches of the surviving history whose update was set aside."""
        return self._db.number(
            "SELECT COUNT(*) FROM batches WHERE state = 'consumed' AND NOT applied"
        )
