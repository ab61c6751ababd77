"""Steps, evaluations, alerts and small state (cursor, RNG, counters) in the ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from spade_async.ledger.connection import Connection
from spade_async.ledger.rows import AlertRow, EvalRow, StepRow
from spade_async.types import PolicyVersion


class HistoryReads:
    """Queries about what happened."""

    _db: Connection

    def get_state(self, key: str, default: Any = None) -> Any:
        """Value of a key (JSON), or `default`."""
        row = self._db.row("SELECT json FROM state WHERE key = ?", (key,))
        return default if row is None else json.loads(row[0])

    def steps(self, *, with_abandoned: bool = False) -> list[StepRow]:
        """Learner steps by ordinal; those undone by a fall-back only on request."""
        rows = self._db.rows(
            "SELECT s.*, COALESCE(b.state, 'consumed') != 'consumed' AS is_abandoned FROM steps s"
            " LEFT JOIN batches b USING (ordinal) ORDER BY ordinal"
        )
        return [
            StepRow(
                ordinal=row["ordinal"],
                step=row["step"],
                wall_unix_s=row["wall_unix_s"],
                metrics=json.loads(row["metrics_json"]),
                is_abandoned=bool(row["is_abandoned"]),
            )
            for row in rows
            if with_abandoned or not row["is_abandoned"]
        ]

    def evals(self) -> list[EvalRow]:
        """Held-out results by ordinal, version and level."""
        rows = self._db.rows("SELECT * FROM evals ORDER BY ordinal, packed, level")
        return [
            EvalRow(
                ordinal=row["ordinal"],
                version=PolicyVersion.unpack(row["packed"]),
                level=row["level"],
                num_instances=row["num_instances"],
                mean=row["mean"],
                standard_error=row["standard_error"],
            )
            for row in rows
        ]

    def alerts(self) -> list[AlertRow]:
        """Alerts, oldest first."""
        rows = self._db.rows("SELECT unix_s, step, text FROM alerts ORDER BY number")
        return [AlertRow(unix_s=row[0], step=row[1], text=row[2]) for row in rows]


class HistoryWrites(HistoryReads):
    """Changes of the history; inside a transaction."""

    def put_state(self, key: str, value: Any) -> None:
        """Set a key to anything JSON can hold."""
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, json.dumps(value)))

    def add_step(
        self, step: int, ordinal: int, wall_unix_s: float, metrics: Mapping[str, float]
    ) -> None:
        """Set or replace the metrics of a step (`consume_batch` has added those of the report)."""
        self._db.execute(
            "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?)",
            (ordinal, step, wall_unix_s, json.dumps(dict(metrics))),
        )

    def add_eval(
        self,
        ordinal: int,
        version: PolicyVersion,
        level: str,
        num_instances: int,
        mean: float | None,
        standard_error: float | None,
    ) -> None:
        """Note a held-out result; the same version and level again replaces it."""
        self._db.execute(
            "INSERT OR REPLACE INTO evals VALUES (?, ?, ?, ?, ?, ?)",
            (version.packed, level, ordinal, num_instances, mean, standard_error),
        )

    def add_alert(self, unix_s: float, step: int, text: str) -> None:
        """Note something that a user should know."""
        self._db.execute(
            "INSERT INTO alerts (unix_s, step, text) VALUES (?, ?, ?)", (unix_s, step, text)
        )
