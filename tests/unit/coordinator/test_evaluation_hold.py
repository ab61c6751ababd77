"""How long an evaluation may keep newer weights from the generators."""

from __future__ import annotations

from pathlib import Path

import pytest

from spade_async.transport import messages as m
from spade_async.types import PolicyVersion
from tests.support.probe_world import FaultyGenerator, ProbeRun
from tests.support.scripted_run import ScriptedLearner


def never_scored(answer: m.Message) -> list[m.Message]:
    """The second half of an evaluation's episodes never comes."""
    is_lost = isinstance(answer, m.EpisodeResult) and answer.purpose == "eval" and answer.index > 1
    return [] if is_lost else [answer]


def test_newer_weights_wait_for_an_evaluation_as_long_as_the_bound_says(tmp_path: Path) -> None:
    # Nothing waits for the one of the last step: that is cut by async.straggler_s.
    limits = {"async": {"straggler_s": 4.0}, "train": {"steps": 6}}
    run = ProbeRun(tmp_path / "run", eval={"every": 4, "hold_s": 0.3}, **limits)
    coordinator = run.go(FaultyGenerator(never_scored), limit_s=40.0)
    assert [b.step for b in run.batches] == [1, 2, 3, 4, 5, 6]
    told = [alert for alert in coordinator.core.alerts.recent if "eval.hold_s=0.3" in str(alert)]
    assert told
    assert {alert.kind for alert in told} == {"straggler_cut"}
    held_s = coordinator.core.counters["eval_held_us"] / 1e6
    assert held_s >= 0.3
    # What came in time is scored, what did not is missing by name.
    scored = run.query("SELECT num_instances FROM evals")
    assert scored
    assert all(num == 2 for (num,) in scored)
    run.check()


@pytest.mark.parametrize("bound", [0, 2])
def test_without_a_limit_it_holds_the_learner_after_bound_plus_one_steps(
    tmp_path: Path, bound: int
) -> None:
    """The bound of the age is the bound of the hold: groups need the weights of their birth."""
    bounds = {"async": {"agent_bound": bound, "designer_bound": bound, "straggler_s": 1.0}}
    run = ProbeRun(tmp_path / "run", eval={"every": 4}, **bounds)
    most = loaded = 0

    def alter(answer: m.Message) -> list[m.Message]:
        nonlocal most, loaded
        if isinstance(answer, m.WeightsLoaded):
            loaded = PolicyVersion.unpack(answer.version).step
        most = max(most, len(learner.trained) - loaded)
        return never_scored(answer)

    learner = ScriptedLearner()
    run.go(FaultyGenerator(alter), learner=learner, limit_s=40.0)
    assert [b.step for b in run.batches] == [1, 2, 3, 4, 5, 6]
    assert 1 <= most <= bound + 1
    run.check()
