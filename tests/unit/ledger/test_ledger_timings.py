"""Times in the ledger, and ledgers that are older than they."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from spade_async.errors import LedgerError
from spade_async.ledger import Ledger, LedgerReader, StepTime, TaskTime
from spade_async.ledger.schema import SCHEMA_VERSION, UPGRADES
from tests.support.ledger_rows import old_ledger


def task(task_id: str, position: int = 0, **more: float) -> TaskTime:
    values: dict = {
        "task_id": task_id, "position": position, "group_id": "g", "kind": "design", "arm": "",
        "generator": "gen-0", "dispatched_unix_s": 1.0, "started_unix_s": 2.0,
        "finished_unix_s": 5.0, "queue_s": 0.5, "engine_s": 2.0, "num_tokens": 7,
    }  # fmt: skip
    return TaskTime(**(values | more))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    where = tmp_path / "ledger.sqlite"
    Ledger.open(where, create=True, config_digest="c").close()
    return where


def make_old(path: Path) -> None:
    """Nothing of what schemas after the first have added."""
    old_ledger(path, 1)


def test_times_come_back_as_they_were_and_the_first_of_a_result_stays(path: Path) -> None:
    rows = [task("b", finished_unix_s=9.0), task("a"), task("a", 1)]
    step = StepTime(ordinal=1, num_samples=4, num_tokens=30, taken_unix_s=1.0)
    with Ledger.open(path, create=False, config_digest="c") as ledger:
        with ledger.transaction():
            ledger.add_task_times(rows)
            ledger.put_step_times([step])
        with ledger.transaction():
            ledger.add_task_times([task("a", num_tokens=99)])
            ledger.put_step_times([StepTime(
                ordinal=1, num_samples=4, num_tokens=30, taken_unix_s=1.0, trained_unix_s=3.0,
            )])  # fmt: skip
    with LedgerReader.open(path) as reader:
        assert reader.task_times() == [task("a"), task("a", 1), task("b", finished_unix_s=9.0)]
        (found,) = reader.step_times()
    assert (found.trained_unix_s, found.loaded_unix_s) == (3.0, None)


def test_an_older_ledger_is_read_and_says_that_it_has_no_times(path: Path) -> None:
    make_old(path)
    with LedgerReader.open(path) as reader:
        assert reader.num_trained() == 0
        with pytest.raises(LedgerError, match="has schema 1, which holds no timings"):
            reader.task_times()
        with pytest.raises(LedgerError, match="they begin with 2"):
            reader.step_times()


def test_a_writer_brings_an_older_ledger_up_to_date(path: Path) -> None:
    make_old(path)
    with (
        Ledger.open(path, create=False, config_digest="c") as ledger,
        ledger.transaction(),
    ):
        ledger.add_task_times([task("a")])
    with LedgerReader.open(path) as reader:
        assert reader.task_times() == [task("a")]
        (version,) = reader.query("SELECT value FROM meta WHERE key = 'schema'")
    assert int(version[0]) == SCHEMA_VERSION == max(UPGRADES)


def test_an_upgrade_that_fails_leaves_the_ledger_as_it_was(path: Path) -> None:
    make_old(path)
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE step_times (x)")
    raw.commit()
    raw.close()
    with pytest.raises(LedgerError, match="upgrading"):
        Ledger.open(path, create=False, config_digest="c")
    with LedgerReader.open(path) as reader:
        (version,) = reader.query("SELECT value FROM meta WHERE key = 'schema'")
        names = {row[0] for row in reader.query("SELECT name FROM sqlite_master")}
    assert version[0] == "1"
    assert "task_times" not in names
