"""A run whose generators and learner take turns on one device, and die in their turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from spade_async.cluster.turns import DeviceTurn
from tests.support.promises import check_nothing_lost_or_twice
from tests.support.whole_run import START_LIMIT_S, whole_run

STEPS = 8
pytestmark = pytest.mark.timeout(400)


def test_parts_that_take_turns_outlive_deaths_in_them(tmp_path: Path, nano_model: Path) -> None:
    root = tmp_path / "run"
    with whole_run(
        root, nano_model, cluster__turns="true", generator__count=2, train__steps=STEPS
    ) as run:
        run.start()
        run.wait_steps(1)
        turn = DeviceTurn(root)
        run.wait(lambda: turn.is_wanted, START_LIMIT_S, "the learner's turn")
        run.kill(run.pid("learner"))
        run.wait_steps(1)
        run.wait(lambda: not turn.is_wanted, START_LIMIT_S, "the generators' turn")
        run.kill(run.pid("gen-0"))
        run.wait_steps(1)
        run.wait(lambda: turn.is_wanted, START_LIMIT_S, "the learner's turn")
        run.kill(run.pid("gen-1"))
        turn.close()
        ended = run.end(START_LIMIT_S)
        assert (ended.code, ended.err) == (0, ""), run.said()
        check_nothing_lost_or_twice(run, STEPS)
        for name in ("learner", "gen-0", "gen-1"):
            assert f"{name} (pid" in run.out(), "its death is named"
