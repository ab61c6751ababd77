"""Rows with short arguments for the tests of the ledger."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import numpy as np

from spade_async.ledger import BatchSample, GroupRow, SampleRow
from spade_async.ledger.schema import APPLICATION_ID, SCHEMA_VERSION, TABLES, UPGRADES
from spade_async.transport.messages import StepReport
from spade_async.types import TokenTrace


def group(group_id: str, role: str = "agent", **more: object) -> GroupRow:
    values: dict[str, object] = {
        "group_id": group_id, "role": role, "kind": "play", "birth_ordinal": 0, "members": 2,
        "created_unix_s": 1.0,
    }  # fmt: skip
    return GroupRow(**{**values, **more})


def sample(sample_id: str, group_id: str, role: str = "agent", **more: object) -> SampleRow:
    values: dict[str, object] = {
        "sample_id": sample_id, "group_id": group_id, "role": role, "purpose": "train",
        "created_unix_s": 2.0, "outcome": "finished", "episode_return": 1.0,
    }  # fmt: skip
    return SampleRow(**{**values, **more})


def trace(length: int = 5) -> TokenTrace:
    return TokenTrace(
        token_ids=np.arange(length, dtype=np.int32),
        loss_mask=np.ones(length, np.uint8),
        generator_logprobs=np.linspace(-3, 0, length, dtype=np.float32),
        versions=np.full(length, (1 << 32) | 7, np.int64),
    )


def report(branch: int, step: int, sample_ids: list[str], **more: object) -> StepReport:
    values: dict[str, object] = {
        "branch": branch, "step": step, "applied": True, "metrics": {"loss": 0.5},
        "sample_ids": sample_ids, "checkpoint": f"step-{step}", "quarantine": None,
        "location": "shm", "digest": "d", "publish_s": 0.1, "busy_s": 1.0, "wait_s": 0.0,
    }  # fmt: skip
    return StepReport(**{**values, **more})


def batch_row(sample_id: str, group_id: str, staleness: int = 0) -> BatchSample:
    return BatchSample(sample_id, group_id, 0.25, staleness)


def old_ledger(path: Path, schema: int) -> None:
    """An empty ledger as a program of that schema made it."""
    path.unlink(missing_ok=True)
    tables = TABLES
    for version in range(schema + 1, SCHEMA_VERSION + 1):
        tables = tables.replace(UPGRADES[version], "")
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.executescript(f"PRAGMA application_id = {APPLICATION_ID}; {tables}")
        facts = [("schema", str(schema)), ("config_digest", "c")]
        raw.executemany("INSERT INTO meta VALUES (?, ?)", facts)
        raw.commit()
