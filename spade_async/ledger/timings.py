"""When things happened: one row per result and one per step, for `spade-async simulate RUN`.

Clocks: all instants are the coordinator's own, in unix seconds; a generator only says how long
something took. Nothing else reads these tables, so a run goes on without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from spade_async.errors import LedgerError
from spade_async.ledger.connection import Connection

STILL_OUT = "tasks_still_out"
"""Key of the state: task -> unix seconds of its sending, of those that were out when the run ended.

Absent after a kill.
"""
FIRST_SCHEMA = 2
"""Ledgers of an older schema have no timings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTime:
    """One design, or one episode of a play, from the coordinator's decision to its result."""

    task_id: str
    position: int
    """Index of the result within its task."""
    group_id: str
    kind: str
    """"design", "play", "replay" or "pool"."""
    arm: str
    """Of an episode; "" of a design."""
    generator: str
    dispatched_unix_s: float
    """When its task was sent."""
    started_unix_s: float
    """When the generator began: the weights it was meant for were loaded."""
    finished_unix_s: float
    """When its result arrived."""
    queue_s: float
    """Of the time between: waiting for a slot of the engine."""
    engine_s: float
    """Holding one. The rest is the jail and the link."""
    num_tokens: int
    """Sampled tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One learner step; instants are None when they never came (a run that was cut off)."""

    ordinal: int
    num_samples: int
    num_tokens: int
    """Trained tokens."""
    taken_unix_s: float
    """When its batch was sent."""
    trained_unix_s: float | None = None
    """When it was reported."""
    busy_s: float | None = None
    """Of the learner, by its own clock."""
    published_unix_s: float | None = None
    """When its weights were sent to the generators."""
    loaded_unix_s: float | None = None
    """When the first generator had them; newer weights may have overtaken them."""


class TimingReads:
    """Queries about times."""

    _db: Connection

    def task_times(self) -> list[TaskTime]:
        """All results in order of arrival.

        Raises:
            LedgerError: the ledger is older than these tables.
        """
        self._need_timings()
        rows = self._db.rows("SELECT * FROM task_times ORDER BY finished_unix_s, rowid")
        return [TaskTime(**dict(row)) for row in rows]

    def step_times(self) -> list[StepTime]:
        """All steps by ordinal, undone ones included.

        Raises:
            LedgerError: the ledger is older than these tables.
        """
        self._need_timings()
        rows = self._db.rows("SELECT * FROM step_times ORDER BY ordinal")
        return [StepTime(**dict(row)) for row in rows]

    def _need_timings(self) -> None:
        if self._db.schema < FIRST_SCHEMA:
            raise LedgerError(
                f"ledger {self._db.path} has schema {self._db.schema}, which holds no timings "
                f"(they begin with {FIRST_SCHEMA}): run again, or go on with it by --resume"
            )


class TimingWrites(TimingReads):
    """Changes of times; inside a transaction."""

    def add_task_times(self, rows: Iterable[TaskTime]) -> None:
        """Note results; one that is there already stays."""
        marks = ", ".join("?" * 12)
        self._db.execute_many(
            f"INSERT OR IGNORE INTO task_times VALUES ({marks})", map(astuple, rows)
        )

    def put_step_times(self, rows: Iterable[StepTime]) -> None:
        """Note steps; a later row of the same ordinal replaces the earlier."""
        marks = ", ".join("?" * 8)
        self._db.execute_many(
            f"INSERT OR REPLACE INTO step_times VALUES ({marks})", map(astuple, rows)
        )
