"""Weight sets in the ledger."""

from __future__ import annotations

from collections.abc import Iterable

from spade_async.ledger.connection import Connection
from spade_async.ledger.rows import VersionRow
from spade_async.types import PolicyVersion


class VersionReads:
    """Queries about weight sets."""

    _db: Connection

    def versions(self) -> list[VersionRow]:
        """All weight sets ever made, abandoned ones too, by ordinal then version."""
        rows = self._db.rows("SELECT * FROM versions ORDER BY ordinal, packed")
        return [
            VersionRow(
                ordinal=row["ordinal"],
                version=PolicyVersion.unpack(row["packed"]),
                digest=row["digest"],
                location=row["location"],
                checkpoint=row["checkpoint"],
                created_unix_s=row["created_unix_s"],
                is_abandoned=bool(row["is_abandoned"]),
            )
            for row in rows
        ]

    def last_ordinal(self) -> int:
        """Largest ordinal that is spent (learner steps ever done), 0 for a new run.

        Undone batches count, also one that was only planned: its number is never used again. A
        batch that is planned now does not: a resume plans it again under its number.
        """
        return self._db.number(
            "SELECT MAX((SELECT COALESCE(MAX(ordinal), 0) FROM versions),"
            " (SELECT COALESCE(MAX(ordinal), 0) FROM batches WHERE state != 'planned'))"
        )


class VersionWrites(VersionReads):
    """Changes of weight sets; inside a transaction."""

    def add_version(
        self,
        ordinal: int,
        version: PolicyVersion,
        digest: str,
        location: str,
        checkpoint: str | None,
        wall_unix_s: float,
    ) -> None:
        """Note a weight set (start of a branch; steps are noted by `consume_batch`). Idempotent.

        A branch start has the ordinal of the last step ever done, abandoned ones included.
        """
        self._db.execute(
            "INSERT OR REPLACE INTO versions VALUES (?, ?, ?, ?, ?, ?, 0)",
            (version.packed, ordinal, digest, location, checkpoint, wall_unix_s),
        )

    def set_checkpoint(self, branch: int, step: int, checkpoint: str) -> None:
        """Note the checkpoint of a version that was committed without one."""
        packed = PolicyVersion(branch, step).packed
        self._db.execute(
            "UPDATE versions SET checkpoint = ? WHERE packed = ?", (checkpoint, packed)
        )

    def mark_abandoned(self, ordinals: Iterable[int]) -> None:
        """Mark the versions with these ordinals as not part of the surviving history."""
        self._db.execute_many(
            "UPDATE versions SET is_abandoned = 1 WHERE ordinal = ?", [(n,) for n in ordinals]
        )
