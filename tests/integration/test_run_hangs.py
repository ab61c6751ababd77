"""A part that stands still in a whole run: reported with stacks, killed, and back."""

from __future__ import annotations

import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.whole_run import START_LIMIT_S, WholeRun, whole_run

HUNG_LIMIT_S = 60.0
pytestmark = pytest.mark.timeout(180)


def hanging(root: Path, **more: object) -> AbstractContextManager[WholeRun]:
    """A scripted run that takes six seconds of silence for a hang."""
    values = {"supervisor__silent_s": 6, "train__steps": 100_000, "scripted__learner_s": 0.2}
    return whole_run(root, None, **values | more)


def report(run: WholeRun) -> str:
    return (run.root / "hang-1.txt").read_text()


@pytest.mark.parametrize("name", ["gen-0", "learner"])
def test_stopped_part_is_reported_killed_and_comes_back(tmp_path: Path, name: str) -> None:
    with hanging(tmp_path / "run") as run:
        run.start()
        run.wait_steps(1)
        pid = run.pid(name)
        os.kill(pid, signal.SIGSTOP)
        run.wait(lambda: run.pid(name) != pid, HUNG_LIMIT_S, "killed and started again")
        text = report(run)
        assert f"{name} hangs: it says nothing for" in text
        assert f"== {name}: pid {pid}, state T (stopped)" in text
        assert "(no answer)" in text.partition(f"== {name}:")[2]
        # The others say where they stand.
        assert "asyncio tasks" in text.partition("== coordinator:")[2]
        assert "Current thread" in text or "Thread 0x" in text
        assert "oldest item: " in text
        run.wait_steps(1)
        assert any(alert.kind == "part_hangs" for alert in run.status().alerts)
        run.send(signal.SIGINT)
        ended = run.end(START_LIMIT_S)
        assert (ended.code, ended.err) == (0, "")


def test_stopped_coordinator_ends_the_run_by_name(tmp_path: Path) -> None:
    with hanging(tmp_path / "run") as run:
        run.start()
        run.wait(lambda: run.status().state == "running", START_LIMIT_S, "running")
        os.kill(run.pid("coordinator"), signal.SIGSTOP)
        ended = run.end(HUNG_LIMIT_S)
        assert ended.code == 1
        line = ended.line()
        for word in ("coordinator hangs", "hang-1.txt", "--resume", str(run.root)):
            assert word in line
        assert "== gen-0" in report(run)
        run.values["train.steps"] = run.num_steps() + 2
        run.finish()


def test_report_alone_kills_nobody(tmp_path: Path) -> None:
    with hanging(tmp_path / "run", supervisor__on_hang="report") as run:
        run.start()
        run.wait_steps(1)
        pid = run.pid("learner")
        os.kill(pid, signal.SIGSTOP)
        run.wait((run.root / "hang-1.txt").exists, HUNG_LIMIT_S, "reported")
        os.kill(pid, signal.SIGCONT)
        run.wait_steps(1)
        assert run.pid("learner") == pid
        run.send(signal.SIGINT)
        assert run.end(START_LIMIT_S).code == 0
