"""One run folder that dies in every way, goes on by itself where it can, and is resumed else.

The tests share the folder: each resumes what the one before left (or starts, when it runs alone),
so that a resume after every kind of death is part of the claim. The last one finishes the run.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spade_async.types import PolicyVersion
from tests.support.promises import check_curves_go_on, check_nothing_lost_or_twice
from tests.support.whole_run import END_LIMIT_S, START_LIMIT_S, WholeRun, whole_run

STEPS = 32
"""More than all the tests below can make before a kill: steps whose designs were all invalid have
no episodes, and several of them fit into the second before one."""
NAMED_S = 10.0
SEED = 20261130
pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, nano_model: Path) -> Iterator[WholeRun]:
    root = tmp_path_factory.mktemp("deaths") / "run"
    with whole_run(root, nano_model, train__steps=STEPS, eval__every=8) as run:
        yield run


@pytest.fixture(scope="module")
def finished_before_kills() -> set[str]:
    """Ids of the samples that were finished when the whole run was killed."""
    return set()


def finished_samples(run: WholeRun) -> set[str]:
    return {row[0] for row in run.query("SELECT sample_id FROM samples")}


@pytest.mark.parametrize("name", ["gen-0", "learner"])
def test_killed_part_is_named_and_comes_back_while_the_run_goes_on(
    run: WholeRun, name: str
) -> None:
    run.start()
    run.wait_steps(1)
    pid = run.pid(name)
    killed_s = time.monotonic()
    run.kill(pid)
    run.wait(lambda: f"{name} (pid {pid}) was killed by SIGKILL" in run.out(), NAMED_S, "named")
    assert time.monotonic() - killed_s < NAMED_S
    run.wait(lambda: run.pid(name) != pid, NAMED_S, "started again")
    run.wait_steps(2)
    assert any(name in alert.text and "again" in alert.text for alert in run.status().alerts)
    run.send(signal.SIGINT)
    ended = run.end(START_LIMIT_S)
    assert (ended.code, ended.err) == (0, "")


def test_killed_coordinator_ends_the_run_with_one_line(run: WholeRun) -> None:
    run.start()
    run.wait_steps(1)
    pid = run.pid("coordinator")
    run.kill(pid)
    ended = run.end(END_LIMIT_S)
    assert ended.code == 1
    line = ended.line()
    for word in ("coordinator", f"pid {pid}", "SIGKILL", "coordinator.log", "--resume", run.root):
        assert str(word) in line
    status = run.status()
    assert status.state == "failed"
    assert "coordinator" in (status.failure or "")


@pytest.mark.parametrize("moment", [1, 2])
def test_kill_of_the_whole_run_at_any_moment_leaves_nothing(
    run: WholeRun, finished_before_kills: set[str], moment: int
) -> None:
    rng = random.Random(SEED + moment)
    run.start()
    run.wait_steps(1)
    time.sleep(rng.uniform(0.0, 0.9))
    run.kill_all()
    assert run.end(END_LIMIT_S).code == -signal.SIGKILL
    finished_before_kills |= finished_samples(run)


def test_kill_of_the_supervisor_takes_everything_along(run: WholeRun) -> None:
    run.start()
    run.wait_steps(1)
    assert len(run.living()) > 3  # the parts, and the jail below gen-0
    run.send(signal.SIGKILL)
    assert run.end(END_LIMIT_S).code == -signal.SIGKILL


def test_run_that_died_often_finishes_with_nothing_lost_and_nothing_twice(
    run: WholeRun, finished_before_kills: set[str]
) -> None:
    run.finish()
    assert finished_before_kills <= finished_samples(run)
    more = ("tokens_discarded_for_age", "nonfinite_updates")
    check_nothing_lost_or_twice(run, STEPS, *more)


def test_version_is_never_used_again(run: WholeRun) -> None:
    rows = run.query("SELECT packed, ordinal FROM versions ORDER BY created_unix_s")
    versions = [PolicyVersion.unpack(packed) for packed, _ in rows]
    assert len(set(versions)) == len(versions)
    assert versions == sorted(versions)
    ordinals = [ordinal for _, ordinal in rows]
    assert ordinals == sorted(ordinals)


def test_step_axis_of_every_curve_goes_on_without_doubles(run: WholeRun) -> None:
    check_curves_go_on(run, "learner/loss", run.num_steps())
