"""The ledger: one SQLite file with every durable fact of a run; the coordinator writes it."""

from __future__ import annotations

from spade_async.ledger.reader import LedgerReader
from spade_async.ledger.regrets import RegretRow
from spade_async.ledger.rows import (
    AlertRow,
    BatchRow,
    BatchSample,
    EnvironmentRow,
    EvalRow,
    GroupRow,
    SampleCounts,
    SampleRow,
    StepRow,
    VersionRow,
)
from spade_async.ledger.timings import STILL_OUT, StepTime, TaskTime
from spade_async.ledger.writer import Ledger

__all__ = [
    "STILL_OUT", "AlertRow", "BatchRow", "BatchSample", "EnvironmentRow", "EvalRow", "GroupRow",
    "Ledger", "LedgerReader", "RegretRow", "SampleCounts", "SampleRow", "StepRow", "StepTime",
    "TaskTime", "VersionRow",
]  # fmt: skip
