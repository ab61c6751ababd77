"""Groups that came to nothing by our own fault, one after the other: told, then the end of the run.

One missing sample is a fact to record. When every group of a role is missing for the same kind of
reason (a prompt that can never fit, say), the schedule admits and gives up for ever: nothing hangs,
nothing is trained, and nobody says so. Pure; owned by `Core`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spade_async.errors import ProcessFailure
from spade_async.types import Role

TOLD_AFTER = 8
"""Groups of one role in a row before a user hears of it."""
EMPTY_BATCHES = 20
"""Batches with nothing to train, in a row, after which the run ends."""
_ROUNDS = 2
"""A part that dies makes all that is outstanding missing at once, which must not end the run."""


class Fruitless:
    """Streaks of missing groups by role; a step or a good group ends them."""

    def __init__(self, outstanding: Mapping[Role, int]) -> None:
        """`outstanding`: most groups of a role that can be out at once."""
        self._limits = {role: max(_ROUNDS * most, TOLD_AFTER) for role, most in outstanding.items()}
        self._in_a_row = dict.fromkeys(Role, 0)
        self._since_step = dict.fromkeys(Role, 0)
        self._empty_batches = 0

    def came_to_nothing(self, role: Role, reason: str) -> str | None:
        """Note a group that is missing as a whole; a sentence when a user should hear of it.

        Raises:
            ProcessFailure: so many in a row and no step between that it will not get better.
        """
        self._in_a_row[role] += 1
        self._since_step[role] += 1
        if self._since_step[role] > self._limits[role]:
            raise ProcessFailure(
                f"{self._since_step[role]} {role} groups in a row came to nothing and no step was "
                f"made; the last: {reason}; mend that, then --resume, or a "
                "new run where a setting has to change"
            )
        if self._in_a_row[role] == TOLD_AFTER:
            return f"{TOLD_AFTER} {role} groups in a row came to nothing; the last: {reason}"
        return None

    def came_to_something(self, role: Role) -> None:
        """A group of that role can be trained."""
        self._in_a_row[role] = self._since_step[role] = 0

    def batch_was_empty(self, group_ids: Collection[str], why: str) -> None:
        """Groups were taken of which not one sample can be trained, for these reasons.

        Raises:
            ProcessFailure: so many in a row that it will not get better.
        """
        self._empty_batches += 1
        if self._empty_batches >= EMPTY_BATCHES:
            raise ProcessFailure(
                f"no sample of {self._empty_batches} batches in a row could be trained; of the "
                f"last, with group {min(group_ids, default='none')}: {why}; mend that, then "
                "--resume, or a new run where a setting has to change"
            )

    def step_made(self) -> None:
        """A learner step was committed."""
        self._empty_batches = 0
        self._since_step = dict.fromkeys(Role, 0)
