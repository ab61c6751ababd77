"""Pay in the ledger: designs that wait for it, and what those that were paid were paid for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spade_async.ledger.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class PayRow:
    """One design that was played."""

    sample_id: str
    group_id: str
    skill: str
    standing: dict[str, Any]
    """Regret, why it is missing, hinted mean, whether it hung."""
    held: bool
    """Whether it still waits for its pay."""
    raw: float | None
    """Value of the variant before penalties; None while it waits, or when it is missing."""
    components: dict[str, float]
    """Parts of the value by name; empty while it waits."""
    plays: dict[int, list[float]]
    """Offset -> returns without hint that it was paid for; empty while it waits."""


class PayReads:
    """Queries about pay."""

    _db: Connection

    def pays_of(self, group_id: str) -> list[PayRow]:
        """Played designs of a designer group."""
        rows = self._db.rows(
            "SELECT * FROM pays WHERE group_id = ? ORDER BY sample_id", (group_id,)
        )
        return [
            PayRow(
                sample_id=row["sample_id"],
                group_id=row["group_id"],
                skill=row["skill"],
                standing=json.loads(row["standing_json"]),
                held=bool(row["held"]),
                raw=row["raw"],
                components=json.loads(row["components_json"] or "{}"),
                plays={int(o): r for o, r in json.loads(row["plays_json"] or "{}").items()},
            )
            for row in rows
        ]


class PayWrites(PayReads):
    """Changes of pay; inside a transaction."""

    def hold_pay(
        self, sample_id: str, group_id: str, skill: str, standing: Mapping[str, Any]
    ) -> None:
        """A design was played and waits for its pay."""
        self._db.execute(
            "INSERT OR REPLACE INTO pays VALUES (?, ?, ?, ?, 1, NULL, NULL, NULL)",
            (sample_id, group_id, skill, json.dumps(dict(standing))),
        )

    def note_pay(
        self,
        sample_id: str,
        raw: float | None,
        components: Mapping[str, float],
        plays: Mapping[int, Sequence[float]],
    ) -> None:
        """A design of `hold_pay` was paid, or its pay is missing."""
        self._db.execute(
            "UPDATE pays SET held = 0, raw = ?, components_json = ?, plays_json = ?"
            " WHERE sample_id = ?",
            (raw, json.dumps(dict(components)), json.dumps(dict(plays)), sample_id),
        )

    def reopen(self, reason: str) -> int:
        """Samples left over for this reason may be trained after all (a longer run); how many."""
        return self._db.execute(
            "UPDATE samples SET unused_reason = NULL WHERE unused_reason = ?", (reason,)
        )
