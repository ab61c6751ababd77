"""How the agent acts, and the guards' figures, in whole runs: several turns, and one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.whole_run import Ended, WholeRun, whole_run

TURNS = 3
FAST = {"scripted__token_s": 0.0005, "scripted__learner_s": 0.01, "train__steps": 12}


def steps_of(run: WholeRun) -> list[dict[str, float]]:
    return [json.loads(row[0]) for row in run.query("SELECT metrics_json FROM steps")]


@pytest.mark.timeout(120)
def test_a_run_of_several_turns_has_behaviour_and_no_false_alarm(tmp_path: Path) -> None:
    values = FAST | {"scripted__turns": TURNS, "agent__max_turns": TURNS, "eval__every": 4}
    values["agent__pool_share"] = 0.0  # programs of the pool have one turn
    with whole_run(tmp_path / "run", None, **values) as run:
        run.finish()
        seen = [s for s in steps_of(run) if "behaviour/turns" in s]
        assert seen
        # Every episode has all its turns, but for those of a program of the pool, which is played
        # when designs run dry; and "go on" rejects nothing.
        assert max(s["behaviour/turns"] for s in seen) == TURNS
        assert all(TURNS - 1 < s["behaviour/turns"] <= TURNS for s in seen)
        assert all(s["behaviour/tokens_before_action"] >= 1.0 for s in seen)
        assert not any("behaviour/recovery_share" in s for s in seen)
        # "right" with probability 0.4, else "wrong": two in a row differ with 2 * 0.4 * 0.6.
        used = [s["behaviour/feedback_used_share"] for s in seen]
        assert 0.3 < sum(used) / len(used) < 0.7
        report = run.report()
        assert TURNS - 1 < report["behaviour"]["first_third"]["turns"] <= TURNS
        assert report["behaviour"]["last_third"]["recovery_share"] is None
        # 12 steps of 8 designs, 80 % valid: the window of 64 is full at the end.
        assert steps_of(run)[-1]["guards/effective_skeletons"] > 30
        assert report["alarms"] == []
        assert run.status().alarms == []


@pytest.mark.timeout(400)
def test_a_run_of_single_turns_has_no_behaviour_at_all(finished: tuple[WholeRun, Ended]) -> None:
    run, _ = finished
    assert not any(tag.startswith("behaviour/") for s in steps_of(run) for tag in s)
    assert run.report()["behaviour"] is None
    # Too few designs for a window: absent, not 0.
    assert not any(tag.startswith("guards/eff") for s in steps_of(run) for tag in s)
