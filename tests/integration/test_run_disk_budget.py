"""200 steps below a disk budget: never above it, the last good checkpoint always there."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from spade_async.disk.inventory import used_bytes
from spade_async.disk.manifest import damage
from tests.support.whole_run import WholeRun, whole_run

BUDGET = 26_000_000
SETTINGS = {
    "scripted__token_s": 0.0002, "scripted__learner_s": 0.01, "train__steps": 200,
    "scripted__weights_bytes": 1_000_000, "weights__location": "run_folder",
    "checkpoint__keep": 20, "eval__every": 1000, "agent__groups_per_step": 6,
    "agent__seeds_per_environment": 4, "designer__group_size": 4, "designer__groups_per_step": 1,
    "scripted__nonfinite_steps": "[20, 30, 40, 60, 61, 80]", "run__disk_budget": '"26MB"',
}  # fmt: skip


def last_good(run: WholeRun) -> str | None:
    """The checkpoint that a resume would use, as the ledger says now."""
    try:
        rows = run.query("SELECT checkpoint FROM versions WHERE checkpoint IS NOT NULL "
                         "ORDER BY ordinal DESC LIMIT 1")  # fmt: skip
    except sqlite3.Error:
        return None
    return str(rows[0][0]) if rows else None


@pytest.mark.timeout(240)
def test_a_run_stays_below_its_budget_and_can_always_be_resumed(tmp_path: Path) -> None:
    with whole_run(tmp_path / "run", None, **SETTINGS) as run:
        run.start()
        assert run.process is not None
        peak, looks = 0, 0
        while run.process.poll() is None:
            peak = max(peak, used_bytes(run.root))
            if run.folder.ledger.exists() and (name := last_good(run)) is not None:
                there = (run.folder.checkpoints / name).is_dir()
                # Between the two looks a newer one may have taken its place.
                assert there or last_good(run) != name
                looks += there
            time.sleep(0.1)
        ended = run.end(60.0)
        assert ended.code == 0, run.said()
        assert looks > 10
        assert peak <= BUDGET
        # The budget was what limited it: 20 checkpoints alone are 20 MB.
        assert len(list(run.folder.checkpoints.glob("branch-*"))) < 15
        name = last_good(run)
        assert name is not None
        assert damage(run.folder.checkpoints / name) is None
        report = run.report()
        assert (report["steps"], report["samples_lost"]) == (200, 0)
        assert report["nonfinite_updates"] == 6
        run.values["train.steps"] = 202
        run.finish()
        assert run.report()["steps"] == 202
        assert run.report()["samples_trained_twice"] == 0
