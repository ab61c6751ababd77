"""A disk that fills up under a run: it pauses by name, goes on with room, loses nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def may_mount(folder: Path) -> str | None:
    """Why a file system cannot be mounted here, or None."""
    if os.getuid() != 0:
        return "only root may mount a file system"
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return None if tried.returncode == 0 else f"mount is refused: {tried.stderr.strip()}"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("filled_to", ["the last byte", "4 MiB"])
def test_a_full_disk_pauses_the_run_and_nothing_is_lost(tmp_path: Path, filled_to: str) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    if (why := may_mount(mount)) is not None:
        pytest.skip(why)
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-m", "tests.support.full_disk_run", str(mount),
         filled_to],
        cwd=ROOT, capture_output=True, text=True, timeout=220, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["code"] == 0
    # What was under way when it filled up may still have found room.
    assert found["steps_while_full"] <= 1
    assert found["limited_by"].startswith("disk: ")
    assert found["alerts"][0] == "disk_full"
    assert "disk_room" in found["alerts"]
    assert found["commanded"] >= 1
    report = found["report"]
    assert (report["samples_lost"], report["samples_trained_twice"]) == (0, 0)
    assert report["lost_to_rollback"] == 0
    assert report["samples_missing"] == 0
    # Nobody died of it.
    assert found["restarts"] == 0
    assert found["twice_shown"] == []
