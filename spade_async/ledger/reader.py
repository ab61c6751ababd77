"""Read-only view of a ledger for `status` and `report`; may be used while the writer lives."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from spade_async.ledger.batches import BatchReads
from spade_async.ledger.checks import Checks
from spade_async.ledger.connection import Connection, open_file
from spade_async.ledger.groups import GroupReads
from spade_async.ledger.hints import HintReads
from spade_async.ledger.history import HistoryReads
from spade_async.ledger.looks import LookReads
from spade_async.ledger.memory import MemoryReads
from spade_async.ledger.pays import PayReads
from spade_async.ledger.prompts import PromptReads
from spade_async.ledger.regrets import RegretReads
from spade_async.ledger.samples import SampleReads
from spade_async.ledger.scores import ScoreReads
from spade_async.ledger.timings import TimingReads
from spade_async.ledger.versions import VersionReads


class LedgerReader(
    VersionReads,
    GroupReads,
    PromptReads,
    MemoryReads,
    SampleReads,
    LookReads,
    BatchReads,
    HistoryReads,
    ScoreReads,
    TimingReads,
    RegretReads,
    HintReads,
    PayReads,
    Checks,
):
    """Every query of the ledger; sees what was committed when each query starts."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    @classmethod
    def open(cls, path: Path, *, alone: bool = False) -> Self:
        """Open for reading; `alone` (no writer has it open) leaves no files beside it.

        Raises:
            LedgerError: no such file, not a ledger, damaged, or of a newer program.
        """
        return cls(open_file(path, read_only=True, alone=alone))

    @property
    def path(self) -> Path:
        """The file."""
        return self._db.path

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Rows of any SELECT over the tables of `schema.py` (for the report's own figures)."""
        return self._db.rows(sql, values)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
