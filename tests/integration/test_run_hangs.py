"""A part that stands still in a whole run: reported with stacks, killed, and back."""

from __future__ import annotations

import os
import signal
import time
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
        run.wait(lambda: "lives/back_s" in run.status().metrics, START_LIMIT_S, "counted")
        metrics = run.status().metrics
        kind = "learner" if name == "learner" else "generator"
        assert metrics[f"lives/deaths/{kind}/hangs_in_state_silent"] == 1.0
        assert (metrics["lives/restarts"], metrics["lives/hangs"]) == (1.0, 1.0)
        assert metrics["lives/backoff_s"] == 0.5
        assert metrics["lives/fall_backs"] == (name == "learner")
        assert metrics["lives/named_s"] < 10.0
        assert metrics["lives/back_s"] >= 0.5
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


def test_stop_ends_the_run_by_name_and_saves_it(tmp_path: Path) -> None:
    with hanging(tmp_path / "run", supervisor__on_hang="stop", checkpoint__every=1000) as run:
        run.start()
        run.wait_steps(2)
        os.kill(run.pid("gen-0"), signal.SIGSTOP)
        ended = run.end(HUNG_LIMIT_S)
        assert ended.code == 1
        line = ended.line()
        for word in ("gen-0 hangs: it says nothing for", "hang-1.txt", "--resume", str(run.root)):
            assert word in line
        status = run.status()
        assert status.state == "failed"
        assert (run.folder.checkpoints / f"branch-0-step-{status.step}").is_dir()
        run.values["train.steps"] = run.num_steps() + 1
        run.finish()
        assert run.query("SELECT COUNT(*) FROM batches WHERE state != 'consumed'") == [(0,)]


def deadlocked(root: Path, **more: object) -> AbstractContextManager[WholeRun]:
    """No request ever returns: each part waits for another, and none is at fault by itself."""
    values = {"scripted__hang_share": 1.0, "supervisor__stalled_s": 6, "async__straggler_s": 86_400}
    return hanging(root, supervisor__silent_s=60, **values | more)


def test_deadlock_is_reported_and_ends_the_run_when_restarts_do_not_help(tmp_path: Path) -> None:
    with deadlocked(tmp_path / "run", supervisor__max_deaths=2) as run:
        run.start()
        ended = run.end(START_LIMIT_S)
        assert ended.code == 1
        line = ended.line()
        assert "2 deaths from one cause without a step between" in line
        first, second = report(run), (run.root / "hang-2.txt").read_text()
        for text in (first, second):
            for name in ("gen-0", "learner"):
                assert f"{name} hangs: no part of the run makes progress for" in text
                assert f"== {name}: " in text
            assert "what each part waits for:" in text
            assert "learner: idle, waits for TrainingBatch" in text
        # After the first report the parts were killed and started again.
        assert first.partition("== gen-0: ")[2][:20] != second.partition("== gen-0: ")[2][:20]


def test_deadlock_with_report_alone_is_told_once_and_kills_nobody(tmp_path: Path) -> None:
    with deadlocked(tmp_path / "run", supervisor__on_hang="report") as run:
        run.start()
        run.wait((run.root / "hang-1.txt").exists, HUNG_LIMIT_S, "reported")
        pids = [run.pid(name) for name in ("coordinator", "gen-0", "learner")]
        time.sleep(8.0)
        assert [run.pid(name) for name in ("coordinator", "gen-0", "learner")] == pids
        assert set(pids) <= set(run.living())
        assert not (run.root / "hang-2.txt").exists()
        assert "oldest item: task " in report(run)
        run.send(signal.SIGINT)
        assert run.end(START_LIMIT_S).code == 0
