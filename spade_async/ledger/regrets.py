"""Measurements of regret: with their errors, with the pairs that were not played or are missing."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field

from spade_async.ledger.connection import Connection

FIRST_SCHEMA = 3
"""Ledgers of an older schema have no measurements of their own, only the newest estimates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretRow:
    """One measurement of one environment; numbers are None where its regret is missing."""

    group_id: str
    """Play group that measured it."""
    environment_id: str
    skill: str
    step: int
    """Learner step of the newest weights then."""
    regret: float | None
    standard_error: float | None
    """Over pairs; None with fewer than two."""
    lower_bound: float | None
    """Of the regret, at `regret.confidence`."""
    paid_regret: float | None
    mean_with_hint: float | None
    mean_no_hint: float | None
    regret_class: str | None
    num_planned: int
    """Pairs of the full count."""
    num_played: int
    """Fewer where the class was certain before, or an episode was cut."""
    num_pairs: int
    """Complete ones among them."""
    is_stopped: bool
    """Whether the class was certain before all pairs were played."""
    missing: dict[str, int] = field(default_factory=dict)
    """Episodes without a return, by "arm: reason"."""


class RegretReads:
    """Queries about measurements."""

    _db: Connection

    def regrets(self, environment_id: str | None = None) -> list[RegretRow]:
        """All measurements, or those of one environment, in order; none in an older ledger."""
        if self._db.schema < FIRST_SCHEMA:
            return []
        rows = self._db.rows(
            "SELECT * FROM regrets WHERE :id IS NULL OR environment_id = :id ORDER BY number",
            {"id": environment_id},
        )
        return [_regret(row) for row in rows]

    def regret_of_group(self, group_id: str) -> RegretRow | None:
        """What a play group measured; None before it was scored."""
        if self._db.schema < FIRST_SCHEMA:
            return None
        row = self._db.row("SELECT * FROM regrets WHERE group_id = ?", (group_id,))
        return None if row is None else _regret(row)


class RegretWrites(RegretReads):
    """Changes of measurements; inside a transaction."""

    def add_regret(self, row: RegretRow) -> None:
        """Note a measurement; a group measures once."""
        self._db.execute(
            "INSERT OR REPLACE INTO regrets (group_id, environment_id, skill, step, regret,"
            " standard_error, lower_bound, paid_regret, mean_with_hint, mean_no_hint,"
            " regret_class, num_planned, num_played, num_pairs, is_stopped, missing_json)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.group_id,
                row.environment_id,
                row.skill,
                row.step,
                row.regret,
                row.standard_error,
                row.lower_bound,
                row.paid_regret,
                row.mean_with_hint,
                row.mean_no_hint,
                row.regret_class,
                row.num_planned,
                row.num_played,
                row.num_pairs,
                row.is_stopped,
                json.dumps(row.missing, sort_keys=True),
            ),
        )


def _regret(row: sqlite3.Row) -> RegretRow:
    values = dict(row)
    del values["number"]
    values["is_stopped"] = bool(values["is_stopped"])
    values["missing"] = json.loads(values.pop("missing_json"))
    return RegretRow(**values)
