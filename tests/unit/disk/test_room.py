from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest
from safetensors import SafetensorError

from spade_async.disk import room as module
from spade_async.disk.ballast import BYTES, Ballast
from spade_async.disk.room import Room, WaitCancelled, free_bytes, is_full
from spade_async.errors import LedgerError, WeightsError, boundary
from spade_async.ledger import Ledger


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def wrapped() -> WeightsError:
    try:
        with boundary(WeightsError, "writing"):
            raise full()
    except WeightsError as fault:
        return fault


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (full(), True),
        (OSError(errno.EDQUOT, "x"), True),
        (OSError(errno.EACCES, "x"), False),
        (wrapped(), True),
        (SafetensorError("I/O error: No space left on device (os error 28)"), True),
        (ValueError("x"), False),
        (None, False),
    ],
)
def test_a_full_disk_is_known_through_wrappers(fault: BaseException | None, expected: bool) -> None:
    assert is_full(fault) is expected


def test_a_write_is_tried_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    said: list[str | None] = []
    left = [full(), wrapped(), full()]

    def work() -> str:
        if left:
            raise left.pop()
        return "written"

    room = Room()
    room.listen(said.append, lambda: False)
    assert room.write("checkpoint 0.3", work) == "written"
    assert said == [*["room on the disk for checkpoint 0.3"] * 3, None]
    room.write("more", work)
    assert len(said) == 4


def test_waiting_ends_when_the_process_is_told_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.001)

    def work() -> None:
        raise full()

    room = Room()
    room.listen(lambda what: None, lambda: True)
    with pytest.raises(WaitCancelled):
        room.write("x", work)


def test_any_other_fault_passes() -> None:
    def work() -> None:
        raise WeightsError("damaged")

    with pytest.raises(WeightsError, match="damaged"):
        Room().write("x", work)


def test_ballast_takes_room_and_gives_it_back(tmp_path: Path) -> None:
    ballast = Ballast(tmp_path)
    for _ in range(2):
        ballast.load()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_blocks * 512 >= BYTES
    for _ in range(2):
        ballast.drop()
    assert list(tmp_path.iterdir()) == []
    assert free_bytes(tmp_path) > 0


class FullLedger:
    """A ledger whose file may not grow until `room` is called."""

    def __init__(self, path: Path) -> None:
        self.ledger = Ledger.open(path, create=True, config_digest="x")
        self.raw = self.ledger._db.raw
        self.waits = 0

    def fill(self) -> None:
        pages = self.raw.execute("PRAGMA page_count").fetchone()[0]
        self.raw.execute(f"PRAGMA max_page_count = {pages}")

    def room(self) -> None:
        self.waits += 1
        if self.waits == 3:
            self.raw.execute("PRAGMA max_page_count = 1000000")


BIG = "x" * 200_000


def test_a_transaction_survives_a_full_disk_whole_and_once(tmp_path: Path) -> None:
    full_ledger = FullLedger(tmp_path / "ledger.sqlite")
    ledger = full_ledger.ledger
    ledger.wait_on_full(full_ledger.room)
    with ledger.transaction():
        ledger.add_alert(0.0, 0, "before")
    with ledger.transaction(full=True):
        # Small changes fit, the third does not: SQLite undoes all of them.
        ledger.add_alert(1.0, 1, "first")
        ledger.put_state("small", 1)
        full_ledger.fill()
        ledger.add_alert(2.0, 2, BIG)
        ledger.add_alert(3.0, 3, "last")
    assert full_ledger.waits == 3
    assert [a.text for a in ledger.alerts()] == ["before", "first", BIG, "last"]
    assert ledger.get_state("small") == 1
    ledger.close()
    again = Ledger.open(tmp_path / "ledger.sqlite", create=False, config_digest="x")
    assert [a.step for a in again.alerts()] == [0, 1, 2, 3]
    again.close()


def test_the_first_change_of_a_transaction_may_be_the_one_that_finds_no_room(
    tmp_path: Path,
) -> None:
    full_ledger = FullLedger(tmp_path / "ledger.sqlite")
    full_ledger.ledger.wait_on_full(full_ledger.room)
    with full_ledger.ledger.transaction():
        full_ledger.fill()
        full_ledger.ledger.add_alert(1.0, 1, BIG)
    assert [a.step for a in full_ledger.ledger.alerts()] == [1]
    full_ledger.ledger.close()


def test_without_somebody_who_waits_it_is_an_error(tmp_path: Path) -> None:
    full_ledger = FullLedger(tmp_path / "ledger.sqlite")
    full_ledger.fill()
    with pytest.raises(LedgerError, match="full") as caught, full_ledger.ledger.transaction():
        full_ledger.ledger.add_alert(1.0, 1, BIG)
    assert is_full(caught.value)
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert full_ledger.ledger.alerts() == []
    full_ledger.ledger.close()
