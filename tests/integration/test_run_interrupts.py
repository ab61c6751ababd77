"""Ctrl-C at every stage of a whole run: saved once, at once twice, never anything left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.whole_run import END_LIMIT_S, START_LIMIT_S, WholeRun, whole_run

AT_ONCE_S = 5.0
STEPS = 6
pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, nano_model: Path) -> Iterator[WholeRun]:
    """One folder: the tests interrupt it again and again, the last one lets it finish."""
    root = tmp_path_factory.mktemp("interrupts") / "run"
    with whole_run(root, nano_model, train__steps=STEPS) as run:
        yield run


def test_ctrl_c_during_start_up_leaves_nothing_and_can_be_resumed(run: WholeRun) -> None:
    run.start()
    run.wait(lambda: "processes" in run.info(), START_LIMIT_S, "the folder is taken")
    run.wait(lambda: "learner" in run.info()["processes"], START_LIMIT_S, "parts are spawned")
    run.send(signal.SIGINT)
    ended = run.end(END_LIMIT_S)
    assert (ended.code, ended.err) == (0, "")
    assert "--resume" in ended.out
    assert run.status().state == "stopped"
    assert run.num_steps() == 0


def test_ctrl_c_once_finishes_the_step_and_saves_it(run: WholeRun) -> None:
    run.start()
    run.wait_steps(1)
    run.send(signal.SIGINT)
    ended = run.end(2 * END_LIMIT_S)
    assert (ended.code, ended.err) == (0, "")
    assert "stopped and saved" in ended.out
    status = run.status()
    assert (status.state, status.step) == ("stopped", run.num_steps())
    assert 1 <= status.step < STEPS
    newest = run.query("SELECT checkpoint FROM versions ORDER BY packed DESC LIMIT 1")[0][0]
    assert (run.folder.checkpoints / newest).is_dir()
    assert run.query("SELECT COUNT(*) FROM batches WHERE state = 'planned'") == [(0,)]


def test_ctrl_c_twice_ends_at_once(run: WholeRun) -> None:
    before = run.num_steps()
    run.start()
    run.wait_steps(1)
    run.send(signal.SIGINT)
    time.sleep(0.02)  # two signals at the same instant are one
    run.send(signal.SIGINT)
    ended = run.end(AT_ONCE_S)
    # The first may have been enough: the step was just done.
    assert ended.code in (130, 0)
    assert ended.err == ""
    assert run.num_steps() > before


def test_run_whose_reader_has_gone_goes_on_to_the_end(run: WholeRun) -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    run.start(output_fd=write_fd)
    os.close(write_fd)
    ended = run.end(START_LIMIT_S)
    assert (ended.code, ended.err) == (0, "")
    status = run.status()
    assert (status.state, status.step) == ("finished", STEPS)
    report = run.report()
    assert (report["samples_lost"], report["samples_trained_twice"]) == (0, 0)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_stop_between_two_checkpoints_saves_the_newest_step(
    tmp_path: Path, signum: signal.Signals
) -> None:
    with whole_run(tmp_path / "run", None, checkpoint__every=1000, train__steps=100_000) as run:
        run.start()
        run.wait_steps(3)
        run.send(signum)
        ended = run.end(START_LIMIT_S)
        assert (ended.code, ended.err) == (0, "")
        step = run.status().step
        newest = f"branch-0-step-{step}"
        checkpoint = run.query("SELECT checkpoint FROM versions ORDER BY packed DESC LIMIT 1")
        assert checkpoint == [(newest,)]
        assert [p.name for p in run.folder.checkpoints.iterdir()] == [newest]
        run.values["train.steps"] = step + 2
        run.finish()
        # Every step once: nothing was undone.
        steps = run.query("SELECT state, COUNT(*) FROM batches GROUP BY state")
        assert steps == [("consumed", step + 2)]


def test_ctrl_c_during_the_warm_start_leaves_nothing(tmp_path: Path) -> None:
    with whole_run(tmp_path / "run", "nano") as run:
        run.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
        run.start()
        run.wait(lambda: run.status().state == "warm_start", START_LIMIT_S, "warm start")
        time.sleep(1.0)
        run.send(signal.SIGINT)
        ended = run.end(AT_ONCE_S)
        assert (ended.code, ended.err) == (130, "")
        assert "before the first step" in ended.out
        assert list((tmp_path / "cache").rglob("*.safetensors")) == []


def test_kill_of_the_supervisor_during_the_warm_start_takes_the_maker_along(tmp_path: Path) -> None:
    with whole_run(tmp_path / "run", "nano") as run:
        run.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
        run.start()
        run.wait(lambda: len(run.living()) >= 2, START_LIMIT_S, "the maker and its child")
        run.send(signal.SIGKILL)
        assert run.end(END_LIMIT_S).code == -signal.SIGKILL
