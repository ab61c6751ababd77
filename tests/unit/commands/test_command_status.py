from __future__ import annotations

import time
from pathlib import Path

import pytest

from spade_async.commands.status import as_json, current_status
from spade_async.config.schema import Config
from spade_async.errors import ConfigError, RunFolderError
from spade_async.supervisor.folder import take
from spade_async.telemetry.status import RunStatus, write_status


def test_live_run_is_shown_as_it_says(tmp_path: Path) -> None:
    locked = take(tmp_path / "run", Config(), resume=False)
    write_status(locked.folder.status, RunStatus(state="running", step=4, steps=9))
    shown = as_json(current_status(tmp_path / "run"))
    assert (shown["state"], shown["step"], shown["episodes_per_hour"]) == ("running", 4, None)
    assert {"policy_version", "processes", "oldest_wait_seconds", "limited_by", "alerts"} <= set(
        shown
    )
    locked.close()


def test_coordinator_that_hangs_is_named_when_its_status_gets_old(tmp_path: Path) -> None:
    locked = take(tmp_path / "run", Config(), resume=False)
    for age_s, is_named in ((1.0, False), (45.0, True)):
        said = RunStatus(state="running", limited_by="", updated_unix_s=time.time() - age_s)
        write_status(locked.folder.status, said)
        limited_by = current_status(tmp_path / "run").limited_by
        assert ("coordinator, silent for 45 s" in limited_by) is is_named
    locked.close()


def test_run_whose_supervisor_was_killed_is_failed_and_says_how_to_go_on(tmp_path: Path) -> None:
    locked = take(tmp_path / "run", Config(), resume=False)
    write_status(locked.folder.status, RunStatus(state="running"))
    locked.close()
    status = current_status(tmp_path / "run")
    assert status.state == "failed"
    assert "--resume" in (status.failure or "")


def test_ended_run_stays_as_it_ended(tmp_path: Path) -> None:
    locked = take(tmp_path / "run", Config(), resume=False)
    write_status(locked.folder.status, RunStatus(state="finished"))
    locked.close()
    assert current_status(tmp_path / "run").state == "finished"


def test_folder_without_run_or_status_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run folder"):
        current_status(tmp_path)
    take(tmp_path / "run", Config(), resume=False).close()
    with pytest.raises(RunFolderError, match="no status yet"):
        current_status(tmp_path / "run")
