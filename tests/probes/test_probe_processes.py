"""Probes of processes, with real ones: stuck environments, and nothing left behind.

Rows 15 and 57 of docs/probes.md. Engine and learner are scripted, the rest is real.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.whole_run import whole_run

FAST = {"scripted__token_s": 0.0005, "scripted__learner_s": 0.01}
pytestmark = pytest.mark.timeout(180)


def test_a_run_ends_at_its_last_step_while_environments_are_stuck_in_the_jail(
    tmp_path: Path,
) -> None:
    """Many of the valid programs never answer; the run ends, and no sandbox outlives it."""
    values = FAST | {
        "train__steps": 4,
        "scripted__jail": "true",
        "scripted__stuck_share": 0.4,
        "sandbox__workers": 16,
        "sandbox__spares": 4,
        "sandbox__wall_s_per_call": 0.4,
    }
    with whole_run(tmp_path / "run", None, **values) as run:
        run.finish(150.0)  # which also checks that nothing is left
        report = run.report()
        assert report["steps"] == 4
        assert report["samples_lost"] == report["samples_trained_twice"] == 0
        outcomes = dict(run.query("SELECT outcome, COUNT(*) FROM samples GROUP BY 1"))
        assert outcomes.get("timed_out", 0) > 0
        reasons = {row[0] for row in run.query("SELECT DISTINCT missing_reason FROM samples")}
        assert "environment: timed_out in step 1" in reasons
