from __future__ import annotations

import errno
import shutil
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from spade_async.config.run_folder import RunFolder
from spade_async.supervisor.death import death_line
from spade_async.supervisor.folder import unusable
from spade_async.supervisor.parts import Part
from spade_async.supervisor.resources import ResourceMeter

Usage = namedtuple("Usage", "total used free")


def test_death_on_a_full_disk_says_so_whatever_the_log_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = cast(
        Part,
        SimpleNamespace(
            name="learner", pid=7, returncode=1, log=tmp_path / "learner.log", log_start=0
        ),
    )
    assert "free some space" not in death_line(part, None, tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 30, 1 << 30, 0))
    assert f"the disk of {tmp_path} is full: free some space" in death_line(part, None, tmp_path)


def test_costs_that_cannot_be_written_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    meter = ResourceMeter(RunFolder(tmp_path), is_resumed=False)
    monkeypatch.setattr(Path, "write_text", refuse)
    meter.tick(force=True)


def test_refusal_of_the_operating_system_has_a_next_move(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert "No space left on device; free some space" in str(unusable(tmp_path, full))
