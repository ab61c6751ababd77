"""Updates that are never finite end a whole run: one cause, a checkpoint, and a way on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.whole_run import whole_run


@pytest.mark.timeout(180)
def test_three_in_a_row_end_the_run_and_a_resume_goes_on(tmp_path: Path) -> None:
    settings = {
        "scripted__token_s": 0.0005, "scripted__learner_s": 0.01, "train__steps": 9,
        "checkpoint__every": 100, "scripted__nonfinite_steps": "[2, 4, 5, 6]",
    }  # fmt: skip
    with whole_run(tmp_path / "run", None, **settings) as run:
        run.start()
        ended = run.end(90.0)
        assert ended.code == 1
        line = ended.line()
        assert "3 updates in a row were not finite (learner.max_nonfinite=3)" in line
        assert "batch-0-6" in line
        assert f"spade-async train {run.root} --resume" in line
        status = run.status()
        assert (status.state, status.step) == ("failed", 6)
        assert [p.name for p in run.folder.checkpoints.iterdir()] == ["branch-0-step-6"]
        told = [json.loads(text) for text in run.folder.alerts.read_text().splitlines()]
        assert told[-1]["kind"] == "nonfinite_stop"
        run.finish()
        report = run.report()
        assert report["steps"] == 9
        assert (report["samples_lost"], report["samples_trained_twice"]) == (0, 0)
        assert report["nonfinite_updates"] == 4
