"""Environments in the ledger, their designs and what is known of their regret."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict

from spade_async.errors import LedgerError
from spade_async.ledger.connection import Connection
from spade_async.ledger.rows import EnvironmentRow
from spade_async.types import Environment, MissingRegret, RegretEstimate

_SELECT = (
    "SELECT e.*, (SELECT COUNT(*) FROM designs d WHERE d.environment_id = e.environment_id)"
    " AS num_designs FROM environments e"
)


class EnvironmentReads:
    """Queries about environments."""

    _db: Connection

    def environment(self, environment_id: str) -> EnvironmentRow | None:
        """One environment."""
        row = self._db.row(f"{_SELECT} WHERE e.environment_id = ?", (environment_id,))
        return None if row is None else _environment(row)

    def environments(
        self, limit: int | None = None, *, origin: str | None = None, with_estimate: bool = False
    ) -> list[EnvironmentRow]:
        """Newest first.

        Args:
            limit: at most this many.
            origin: only these ("designer", "seed", "held_out").
            with_estimate: only those with a regret (what memory is refilled from).
        """
        rows = self._db.rows(
            f"{_SELECT} WHERE (:origin IS NULL OR e.origin = :origin)"
            " AND (NOT :with_estimate OR e.estimate_json IS NOT NULL)"
            " ORDER BY e.rowid DESC LIMIT :limit",
            {
                "origin": origin,
                "with_estimate": with_estimate,
                "limit": -1 if limit is None else limit,
            },
        )
        return [_environment(row) for row in rows]

    def environment_of_design(self, sample_id: str) -> str | None:
        """Environment that a design sample made, or None."""
        row = self._db.row("SELECT environment_id FROM designs WHERE sample_id = ?", (sample_id,))
        return None if row is None else str(row[0])

    def skeleton_counts(self) -> dict[str, int]:
        """Valid designs of the run by skeleton."""
        rows = self._db.rows(
            "SELECT skeleton, COUNT(*) FROM designs JOIN environments USING (environment_id)"
            " GROUP BY skeleton"
        )
        return {row[0]: row[1] for row in rows}

    def last_designs(self, limit: int | None = None) -> list[tuple[str, str, str]]:
        """(sample id, skeleton, environment id) of the last valid designs, or all; oldest first."""
        rows = self._db.rows(
            "SELECT d.sample_id, e.skeleton, environment_id FROM designs d JOIN environments e"
            " USING (environment_id) ORDER BY d.rowid DESC LIMIT ?",
            (-1 if limit is None else limit,),
        )
        return [tuple(row) for row in reversed(rows)]


class EnvironmentWrites(EnvironmentReads):
    """Changes of environments; inside a transaction."""

    def add_environment(
        self,
        environment: Environment,
        group_id: str | None,
        sample_id: str | None,
        created_step: int,
        created_unix_s: float = 0.0,
    ) -> bool:
        """Note an environment and, with `sample_id` and `group_id`, the design that made it.

        The same program may be designed again: only the design is added then. False when the
        environment was there already.
        """
        is_new = self._db.execute(
            "INSERT OR IGNORE INTO environments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)",
            (
                environment.environment_id,
                environment.source,
                environment.hint_mode,
                environment.hint,
                environment.leak_share,
                json.dumps(environment.labels),
                environment.skeleton,
                environment.origin,
                created_step,
                created_unix_s,
            ),
        )
        if sample_id is not None:
            self._db.execute(
                "INSERT OR IGNORE INTO designs VALUES (?, ?, ?, ?)",
                (sample_id, environment.environment_id, group_id or "", created_step),
            )
        return is_new == 1

    def set_estimate(self, environment_id: str, estimate: RegretEstimate | MissingRegret) -> None:
        """Note the newest regret of an environment, or why there is none.

        A missing one does not erase an earlier estimate.
        """
        if isinstance(estimate, MissingRegret):
            changed = self._db.execute(
                "UPDATE environments SET missing_regret = ? WHERE environment_id = ?",
                (estimate.reason, environment_id),
            )
        else:
            changed = self._db.execute(
                "UPDATE environments SET estimate_json = ?, missing_regret = NULL"
                " WHERE environment_id = ?",
                (json.dumps(asdict(estimate)), environment_id),
            )
        if changed != 1:
            raise LedgerError(
                f"ledger {self._db.path}: environment {environment_id!r} was never added"
            )


def _environment(row: sqlite3.Row) -> EnvironmentRow:
    labels = tuple((str(name), str(value)) for name, value in json.loads(row["labels_json"]))
    estimate = row["estimate_json"]
    return EnvironmentRow(
        environment=Environment(
            environment_id=row["environment_id"],
            source=row["source"],
            hint_mode=row["hint_mode"],
            hint=row["hint"],
            leak_share=row["leak_share"],
            labels=labels,
            skeleton=row["skeleton"],
            origin=row["origin"],
        ),
        created_step=row["created_step"],
        created_unix_s=row["created_unix_s"],
        num_designs=row["num_designs"],
        estimate=None if estimate is None else json.loads(estimate),
        missing_regret=row["missing_regret"],
    )
