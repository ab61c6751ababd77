"""One alarm with hysteresis: told once when it begins, once when it is over. Pure."""

from __future__ import annotations

import enum
from typing import Any


class Change(enum.Enum):
    """What an observation did to an alarm."""

    RAISED = "raised"
    CLEARED = "cleared"


class Alarm:
    """Raised after `patience` observations beyond its limit in a row, cleared after as many within.

    Between the limit and the one for clearing neither count moves on: an alarm does not flicker.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._in_a_row = 0
        self.is_raised = False

    def observe(self, *, is_beyond: bool, is_within: bool) -> Change | None:
        """Take one observation; a change when there is one.

        Args:
            is_beyond: the limit is passed.
            is_within: the limit for clearing, which is stricter, is kept.
        """
        counts = is_within if self.is_raised else is_beyond
        self._in_a_row = self._in_a_row + 1 if counts else 0
        if self._in_a_row < self._patience:
            return None
        self._in_a_row = 0
        self.is_raised = not self.is_raised
        return Change.RAISED if self.is_raised else Change.CLEARED

    def state(self) -> dict[str, Any]:
        """JSON-able, for the ledger."""
        return {"is_raised": self.is_raised, "in_a_row": self._in_a_row}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self.is_raised = bool(state["is_raised"])
        self._in_a_row = int(state["in_a_row"])
