"""Groups in the ledger: samples that share a baseline."""

from __future__ import annotations

import sqlite3
from dataclasses import astuple

from spade_async.errors import LedgerError
from spade_async.ledger.connection import Connection
from spade_async.ledger.rows import GROUP_STATES, GroupRow


class GroupReads:
    """Queries about groups."""

    _db: Connection

    def group(self, group_id: str) -> GroupRow | None:
        """One group."""
        row = self._db.row("SELECT * FROM groups WHERE group_id = ?", (group_id,))
        return None if row is None else _group(row)

    def open_groups(self) -> list[GroupRow]:
        """Groups that are open or ready and in no planned or to-be-replayed batch, oldest first.

        Those in such a batch are trained through `planned_batch` and `replay_queue` instead.
        """
        rows = self._db.rows(
            "SELECT * FROM groups WHERE state IN ('open', 'ready') AND group_id NOT IN ("
            " SELECT s.group_id FROM batch_samples s JOIN batches b USING (ordinal)"
            " WHERE b.state IN ('planned', 'replay'))"
            " ORDER BY birth_ordinal, rowid"
        )
        return [_group(row) for row in rows]

    def children_of(self, group_id: str) -> list[GroupRow]:
        """Play groups of a design group."""
        rows = self._db.rows(
            "SELECT * FROM groups WHERE parent_group = ? ORDER BY rowid", (group_id,)
        )
        return [_group(row) for row in rows]


class GroupWrites(GroupReads):
    """Changes of groups; inside a transaction."""

    def add_group(self, group: GroupRow) -> bool:
        """Note a group; False when it was there already (nothing changes)."""
        marks = ", ".join("?" * 13)
        values = astuple(group)
        return self._db.execute(f"INSERT OR IGNORE INTO groups VALUES ({marks})", values) == 1

    def set_group_state(self, group_id: str, state: str) -> None:
        """Move a group to one of `GROUP_STATES`.

        Raises:
            ValueError: no such state.
            LedgerError: no such group.
        """
        if state not in GROUP_STATES:
            raise ValueError(f"group state {state!r}: expected one of {', '.join(GROUP_STATES)}")
        changed = self._db.execute(
            "UPDATE groups SET state = ? WHERE group_id = ?", (state, group_id)
        )
        if changed != 1:
            raise LedgerError(f"ledger {self._db.path}: group {group_id!r} was never added")


def _group(row: sqlite3.Row) -> GroupRow:
    return GroupRow(**{key: row[key] for key in row.keys()})  # noqa: SIM118 (Row iterates values)
