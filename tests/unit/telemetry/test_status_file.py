from __future__ import annotations

from pathlib import Path

from spade_async.telemetry.status import ProcessStatus, RunStatus, read_status, write_status


def test_status_survives_the_file_and_leaves_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    status = RunStatus(state="running", step=3, processes=[ProcessStatus(name="a", state="idle")])
    write_status(path, status)
    assert read_status(path) == status
    assert [p.name for p in tmp_path.iterdir()] == ["status.json"]


def test_missing_or_damaged_status_is_none(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    assert read_status(path) is None
    path.write_text("{")
    assert read_status(path) is None
