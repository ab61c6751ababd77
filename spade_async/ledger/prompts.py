"""Which prompts made a group: one row per group and prompt, with the version of its text."""

from __future__ import annotations

from collections.abc import Mapping

from spade_async.ledger.connection import Connection

FIRST_SCHEMA = 3
"""Ledgers of an older schema do not say it."""


class PromptReads:
    """Queries about prompts."""

    _db: Connection

    def prompts_of(self, group_id: str) -> dict[str, str]:
        """What a prompt was for ("designer", "hint", "agent") -> its version; {} when unknown."""
        if self._db.schema < FIRST_SCHEMA:
            return {}
        rows = self._db.rows("SELECT part, version FROM prompts WHERE group_id = ?", (group_id,))
        return {str(part): str(version) for part, version in rows}

    def prompt_counts(self) -> dict[str, dict[str, int]]:
        """What a prompt was for -> version -> number of groups."""
        found: dict[str, dict[str, int]] = {}
        if self._db.schema >= FIRST_SCHEMA:
            for part, version, count in self._db.rows(
                "SELECT part, version, COUNT(*) FROM prompts GROUP BY 1, 2 ORDER BY 1, 2"
            ):
                found.setdefault(part, {})[version] = count
        return found


class PromptWrites(PromptReads):
    """Changes of prompts; inside a transaction."""

    def add_prompts(self, group_id: str, versions: Mapping[str, str]) -> None:
        """Note the prompts of a new group; what is there already stays."""
        self._db.execute_many(
            "INSERT OR IGNORE INTO prompts VALUES (?, ?, ?)",
            [(group_id, part, version) for part, version in versions.items()],
        )
