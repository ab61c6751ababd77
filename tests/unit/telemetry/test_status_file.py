from __future__ import annotations

from pathlib import Path

import pytest

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


def test_a_full_disk_is_written_over_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "status.json"
    write_status(path, RunStatus(state="running", step=1, limited_by="x" * 500))
    with monkeypatch.context() as full:

        def refuse(*_: object) -> int:
            raise OSError(28, "No space left on device")

        full.setattr(Path, "write_text", refuse)
        write_status(path, RunStatus(state="running", step=2))
    found = read_status(path)
    assert found is not None
    assert found.step == 2
    assert [p.name for p in tmp_path.iterdir()] == ["status.json"]
