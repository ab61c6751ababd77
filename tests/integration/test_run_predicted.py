"""Real runs with scripted delays: the simulator predicts their step time from either's ledger.

The tolerances are for a busy machine, on which delays are longer than scripted and differ from run
to run; `python -m benches whatif` measures against the goal of 10 %, and the same replay in virtual
time is held to it in tests/unit/simulate/test_recorded.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spade_async.simulate.prediction import predict_step_s, read_run
from tests.support.whole_run import spade, whole_run

DELAYS = {
    "train__steps": 16,
    "scripted__token_s": 0.01,
    "scripted__learner_s": 0.25,
    "scripted__sigma": 0.5,
}
"""Designs of 0.4 s, episodes of 0.2 s, a step of 0.25 s: waiting, not computing."""
OWN, OTHER = 0.25, 0.40


@pytest.mark.timeout(240)
def test_step_time_is_predicted_for_its_own_and_for_another_bound(tmp_path: Path) -> None:
    with (
        whole_run(tmp_path / "wide", None, **DELAYS, async__staleness=2) as wide,
        whole_run(tmp_path / "tight", None, **DELAYS, async__staleness=0) as tight,
    ):
        # Side by side, so that both meet the same machine.
        wide.start()
        tight.start()
        for run in (wide, tight):
            assert run.process is not None
            run.process.wait(150.0)
        for run in (wide, tight):
            assert run.end(1.0).code == 0, run.said()
        found = {run: read_run(run.root) for run in (wide, tight)}
        measured = {run: read.measured.step_s for run, read in found.items()}
        assert measured[tight] > 1.5 * measured[wide]
        for work in (wide, tight):
            for target in (wide, tight):
                predicted = predict_step_s(found[work], found[target])
                tolerance = OWN if work is target else OTHER
                assert predicted == pytest.approx(measured[target], rel=tolerance)

        answer = spade("simulate", wide.root, "--bounds", "0,2", "--no-limits", "--json")
        assert answer.code == 0, answer.err
        told = json.loads(answer.out)
        assert told["measured"]["step_s"] == pytest.approx(measured[wide])
        assert told["predicted_step_s"] == pytest.approx(predict_step_s(found[wide], found[wide]))
        assert [row["agent_bound"] for row in told["rows"]] == [0, 2]
