"""A run whose wall clock jumps by hours three times a second goes on as if nothing were."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.whole_run import ROOT, START_LIMIT_S, spade, whole_run

pytestmark = pytest.mark.timeout(180)
JUMPING = os.pathsep.join([str(ROOT / "tests/support/jumping_clock"), str(ROOT)])


def test_jumps_by_hours_change_no_deadline_no_back_off_no_hang_and_no_rate(tmp_path: Path) -> None:
    values = {"supervisor__silent_s": 6, "train__steps": 100_000, "async__straggler_s": 60}
    with whole_run(tmp_path / "run", None, scripted__learner_s=0.1, **values) as run:
        run.environment["PYTHONPATH"] = JUMPING
        run.start()
        run.wait_steps(2)

        killed = run.pid("gen-0")
        run.kill(killed)
        begin_s = time.monotonic()
        run.wait(lambda: run.pid("gen-0") != killed, 30.0, "it is started again")
        assert time.monotonic() - begin_s < 25.0
        run.wait_steps(2)
        kinds = [alert.kind for alert in run.status().alerts]
        assert kinds == ["part_died"]
        assert not (run.root / "hang-1.txt").exists()

        # `status` of a living run, from a process whose clock jumps as well.
        shown = json.loads(spade("status", run.root, "--json", env=environment()).out)
        assert "silent" not in shown["limited_by"]

        learner = run.pid("learner")
        os.kill(learner, signal.SIGSTOP)
        begin_s = time.monotonic()
        run.wait((run.root / "hang-1.txt").exists, 60.0, "the hang is reported")
        # Not at the first jump forward, and not never because of one back.
        assert 4.0 < time.monotonic() - begin_s < 45.0
        run.wait(lambda: run.pid("learner") != learner, 30.0, "killed and started again")
        run.wait_steps(3)
        kinds = [alert.kind for alert in run.status().alerts]
        assert sorted(kinds) == ["part_died", "part_died", "part_hangs"]
        run.send(signal.SIGINT)
        assert run.end(START_LIMIT_S).code == 0

        steps = run.query(
            "SELECT taken_unix_s, trained_unix_s, busy_s FROM step_times"
            " WHERE trained_unix_s IS NOT NULL ORDER BY ordinal"
        )
        assert len(steps) >= 6
        for taken_s, trained_s, busy_s in steps:
            assert busy_s - 0.01 <= trained_s - taken_s < 90.0
        ends = [trained_s for _, trained_s, _ in steps]
        assert ends == sorted(ends)
        tasks = run.query("SELECT finished_unix_s - started_unix_s FROM task_times")
        assert tasks
        assert all(0.0 <= seconds < 90.0 for (seconds,) in tasks)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": JUMPING}
