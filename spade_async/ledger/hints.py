"""When hints of a skill were turned off or tried again, and groups that are measured without."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from spade_async.ledger.connection import Connection
from spade_async.ledger.regrets import FIRST_SCHEMA

HINTS = "hints"
"""Rule of a group that is measured with hints, which is not written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HintChange:
    """From this step on, a skill is measured by `rule`."""

    step: int
    skill: str
    rule: str
    """"hints", or what `regret.negative` said: "ignore", "no_hint", "learning_potential"."""
    regret: float | None
    """Running regret at an alarm; None when hints are tried again."""
    standard_error: float | None
    num_environments: int
    """That the regret is over."""


class HintReads:
    """Queries about hints."""

    _db: Connection

    def hint_changes(self) -> list[HintChange]:
        """All, oldest first; none in an older ledger."""
        if self._db.schema < FIRST_SCHEMA:
            return []
        rows = self._db.rows(
            "SELECT step, skill, rule, regret, standard_error, num_environments FROM hint_changes"
            " ORDER BY number"
        )
        return [HintChange(**dict(row)) for row in rows]

    def hint_rule(self, group_id: str) -> str:
        """How a designer group is measured."""
        if self._db.schema < FIRST_SCHEMA:
            return HINTS
        row = self._db.row("SELECT rule FROM hint_rules WHERE group_id = ?", (group_id,))
        return HINTS if row is None else str(row[0])


class HintWrites(HintReads):
    """Changes; inside a transaction."""

    def add_hint_change(self, change: HintChange) -> None:
        """Note that a skill changed its rule."""
        self._db.execute(
            "INSERT INTO hint_changes (step, skill, rule, regret, standard_error,"
            " num_environments) VALUES (?, ?, ?, ?, ?, ?)",
            astuple(change),
        )

    def set_hint_rule(self, group_id: str, rule: str) -> None:
        """Note the rule of a designer group, unless it is the usual one."""
        if rule != HINTS:
            self._db.execute("INSERT OR IGNORE INTO hint_rules VALUES (?, ?)", (group_id, rule))
