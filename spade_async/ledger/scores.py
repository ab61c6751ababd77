"""Every held-out instance by itself, so that two versions are compared instance by instance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spade_async.ledger.connection import Connection
from spade_async.types import PolicyVersion

FIRST_SCHEMA = 4
"""Older ledgers have none."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """One level under two versions, over the instances that both have."""

    level: str
    num: int
    sum_of_differences: float
    """Second less first."""
    sum_of_squares: float
    """Of the differences."""


class ScoreReads:
    """Queries about single instances."""

    _db: Connection

    def paired_scores(self, first: PolicyVersion, second: PolicyVersion) -> list[Pairs]:
        """By level; [] where an older program scored one of the two."""
        if self._db.schema < FIRST_SCHEMA:
            return []
        rows = self._db.rows(
            "SELECT a.level, COUNT(*), TOTAL(b.episode_return - a.episode_return),"
            " TOTAL((b.episode_return - a.episode_return) * (b.episode_return - a.episode_return))"
            " FROM eval_scores a JOIN eval_scores b ON b.key = a.key AND b.level = a.level"
            " WHERE a.packed = ? AND b.packed = ? GROUP BY a.level",
            (first.packed, second.packed),
        )
        return [Pairs(*row) for row in rows]


class ScoreWrites(ScoreReads):
    """Changes; inside a transaction."""

    def add_scores(self, version: PolicyVersion, scores: Iterable[tuple[str, str, float]]) -> None:
        """Note (key, level, return) of instances; the same key again replaces it.

        Args:
            version: whose every token of these episodes is.
            scores: a key is the same at every evaluation of a run.
        """
        self._db.execute_many(
            "INSERT OR REPLACE INTO eval_scores VALUES (?, ?, ?, ?)",
            [(version.packed, *score) for score in scores],
        )
