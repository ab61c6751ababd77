"""No wall clock decides anything: where one is read at all, it is for a record."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spade_async.telemetry import clock
from spade_async.telemetry.event_file import EventFile
from spade_async.telemetry.silence import with_silence
from spade_async.telemetry.status import RunStatus
from tests.unit.test_imports import PACKAGE, ROOT

RECORDS = {
    "supervisor/hang_report.py": "first line of a report",
    "supervisor/info.py": "starts of a run, in run.json",
    "supervisor/panel.py": "when an alert was told, in local time",
    "supervisor/train.py": "name of a new run folder",
    "telemetry/alerts.py": "when an alert was told",
    "telemetry/clock.py": "where the steady clock begins",
    "telemetry/event_file.py": "wall time of events, and the name of their file",
    "telemetry/status.py": "when a status was written; its age on another machine",
    "telemetry/tensorboard.py": "wall time of events",
    "jail_backends/counters.py": "when a jail event was",
    "weights/folder.py": "age of a folder that is being made or left behind",
    "view/run.py": "when a run folder was last written, shown in a table",
}
"""Every file that reads a wall clock, and what the reading is a record of."""

_TIME = {"time", "time_ns", "ctime", "asctime", "localtime", "gmtime", "strftime"}
_DATE = {"now", "utcnow", "today"}
_STAT = {"st_mtime", "st_ctime", "st_atime", "st_mtime_ns", "st_ctime_ns", "getmtime", "getctime"}


def readings(path: Path) -> Iterator[str]:
    """Names of wall clocks that a file reads."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (a.name for a in node.names if a.name in _TIME)
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            is_wall = owner == "time" and node.attr in _TIME
            is_wall |= owner.rpartition(".")[2] in {"datetime", "date"} and node.attr in _DATE
            if is_wall or node.attr in _STAT or node.attr.startswith("CLOCK_REALTIME"):
                yield f"{owner}.{node.attr}"


def test_wall_clocks_are_read_for_records_alone() -> None:
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in PACKAGE.rglob("*.py")
        if (names := sorted(set(readings(path))))
    }
    assert set(found) == set(RECORDS), found


def test_the_jail_reads_one_for_its_event_log_alone() -> None:
    found = [
        path.name
        for path in (ROOT / "sandbox_rs/src").rglob("*.rs")
        if re.search(r"SystemTime|CLOCK_REALTIME", path.read_text())
    ]
    assert found == ["stats.rs"]


def test_steady_clock_ignores_who_sets_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    before = clock.steady_unix_s()
    assert abs(before - time.time()) < 3600.0
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0.0 <= clock.steady_unix_s() - before < 60.0


@pytest.mark.parametrize("jump_s", [-36_000.0, 36_000.0])
def test_age_of_a_status_ignores_a_jump(monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    status = RunStatus(state="running").stamp()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump_s)
    assert 0.0 <= status.age_s < 60.0
    assert with_silence(status).limited_by == ""


def test_age_of_a_status_of_another_machine_is_by_the_wall_clock() -> None:
    status = RunStatus(state="running").stamp()
    status.boot_id, status.updated_s = "another", 0.0
    status.updated_unix_s -= 500.0
    assert 500.0 <= status.age_s < 560.0


def test_a_newer_event_file_is_named_after_the_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    for unix_s in (2_000_000_000.5, 1_000_000_000.0, 1_000_000_000.0, 3_000_000_000.0):
        monkeypatch.setattr(time, "time", lambda unix_s=unix_s: unix_s)
        file = EventFile(tmp_path, 5.0)
        names.append(file.path.name)
        file.close()
    assert names == sorted(names)
    stamps = [int(name.split(".")[3]) for name in names]
    assert stamps == [2_000_000_000, 2_000_000_001, 2_000_000_002, 3_000_000_000]


def test_every_deadline_of_the_coordinator_is_monotonic() -> None:
    """The classes that hold deadlines run on while the wall clock stands still or goes back."""
    code = (
        "import itertools, time\n"
        "wall = itertools.cycle([0.0, 1e12, -1e12])\n"
        "time.time = lambda: next(wall)\n"
        "from spade_async.config.supervisor import SupervisorConfig\n"
        "from spade_async.coordinator.hangs import Hangs\n"
        "from spade_async.supervisor.restarts import Restarts\n"
        "from spade_async.telemetry.silence import Silence\n"
        "hangs = Hangs(SupervisorConfig(), ['gen-0'])\n"
        "silence = Silence(['gen-0'])\n"
        "for n in range(5):\n"
        "    hangs.beat('gen-0', 'working', n); silence.heard('gen-0')\n"
        "    assert hangs.found() == [] and silence.silent() == {}\n"
        "restarts = Restarts(SupervisorConfig())\n"
        "assert [restarts.died('x') for _ in range(3)] == [0.5, 1.0, 2.0]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
