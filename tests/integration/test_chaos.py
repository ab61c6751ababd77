"""kill -9 at seeded random instants over every process of a run, resumed where it has to be.

Eight kills by default; ``CHAOS_KILLS=100 pytest tests/integration/test_chaos.py`` is the long one,
``CHAOS_SEED`` another draw, ``CHAOS_NANO=1`` the same with the nano model and the jail.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from spade_async.types import PolicyVersion
from tests.support.promises import check_curves_go_on, check_nothing_lost_or_twice
from tests.support.whole_run import END_LIMIT_S, START_LIMIT_S, WholeRun, whole_run

KILLS = int(os.environ.get("CHAOS_KILLS", "8"))
SEED = int(os.environ.get("CHAOS_SEED", "20261130"))
NANO = os.environ.get("CHAOS_NANO") == "1"
RESTART_LIMIT_S = 300.0
"""Until a run that was just shot at does a step; generous: it says nothing of speed."""


def victim(run: WholeRun, draw: random.Random) -> tuple[str, int] | None:
    """Name and pid of a process to kill: a named part, the supervisor, or one of the jail's."""
    assert run.process is not None
    parts = {name: run.pid(name) for name in run.info().get("processes", {})}
    named = [*parts.items(), ("supervisor", run.process.pid)]
    below = sorted(set(run.living()) - {pid for _, pid in named})
    # Some kills hit the crowd below the generators, most hit somebody with a name.
    if below and draw.random() < 0.2:
        return "below", draw.choice(below)
    return draw.choice(named)


def has_ended(run: WholeRun) -> bool:
    return run.process is None or run.process.poll() is not None


def kill_one(run: WholeRun, draw: random.Random, killed: Counter[str]) -> None:
    """Wait a random while, kill, and see to it that the run goes on."""
    if has_ended(run):
        run.start()
        pid = run.process.pid if run.process is not None else 0
        run.wait(lambda: run.info().get("supervisor_pid") == pid, START_LIMIT_S, "the folder")
        run.wait(lambda: len(run.info()["processes"]) > 2, START_LIMIT_S, "its parts")
    # The wait reaches into the start of the parts, and every second one into a run that trains:
    # where a start takes long, nothing would be trained between kills of the clock alone.
    if draw.random() < 0.5:
        before = run.num_steps()
        run.wait(lambda: run.num_steps() > before or has_ended(run), RESTART_LIMIT_S, "a step")
    time.sleep(draw.uniform(0.0, 4.0))
    name, pid = victim(run, draw)
    run.kill(pid)
    killed[name] += 1
    if name in ("supervisor", "coordinator"):
        run.end(END_LIMIT_S)
        return
    if name != "below":
        # The next kill may come before it is back; a run that ends instead has said why.
        time.sleep(draw.uniform(0.0, 2.0))


@pytest.mark.timeout(900 + 60 * KILLS)
def test_kills_at_random_instants_lose_nothing_and_train_nothing_twice(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    draw = random.Random(SEED)
    model = request.getfixturevalue("nano_model") if NANO else None
    # Deaths without a step between are the point here, not a reason to end.
    values = {"train__steps": 100_000, "supervisor__max_deaths": 1000, "generator__count": 2}
    values |= {"supervisor__backoff_max_s": 1.0, "eval__every": 20, "checkpoint__every": 1}
    killed: Counter[str] = Counter()
    with whole_run(tmp_path / "run", model, **values) as run:
        for number in range(1, KILLS + 1):
            kill_one(run, draw, killed)
            print(f"kill {number}, step {run.num_steps()}: {dict(killed)}", flush=True)
        if not has_ended(run):
            before = run.num_steps()
            run.wait(lambda: run.num_steps() > before, RESTART_LIMIT_S, "a step after the last")
            run.kill_all()
            run.end(END_LIMIT_S)
        run.values["train.steps"] = run.num_steps() + 3
        run.finish(2 * START_LIMIT_S)
        print(f"killed {dict(killed)}, {run.num_steps()} steps")
        check(run)


def check(run: WholeRun) -> None:
    """The promises."""
    num_steps = run.values["train.steps"]
    check_nothing_lost_or_twice(run, num_steps)
    check_curves_go_on(run, "learner/samples", num_steps)
    versions = [PolicyVersion.unpack(row[0]) for row in run.query("SELECT packed FROM versions")]
    assert len(set(versions)) == len(versions)
