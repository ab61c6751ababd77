"""Scripted runs: every process and file of a real run, without a model."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from spade_async.telemetry.status import SCRIPTED_NOTE
from tests.support.whole_run import whole_run

FAST = {"scripted__token_s": 0.0005, "scripted__learner_s": 0.01, "train__steps": 3}
NOTHING_WRONG = {
    "samples_lost": 0,
    "samples_trained_twice": 0,
    "samples_over_bound": 0,
    "tokens_discarded_for_age": 0,
    "tokens_cut_at_deadline": 0,
    "lost_to_rollback": 0,
    "nonfinite_updates": 0,
    "samples_missing": 0,
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("jail", [False, True])
def test_scripted_run_ends_as_a_real_one_and_says_what_it_is(tmp_path: Path, jail: bool) -> None:
    values = FAST | {"scripted__jail": str(jail).lower(), "scripted__turns": 2}
    values |= {"agent__max_turns": 3, "sandbox__workers": 16, "sandbox__spares": 4}
    with whole_run(tmp_path / "run", None, **values) as run:
        ended = run.finish()
        report = run.report()
        assert SCRIPTED_NOTE in ended.out
        assert report["scripted"] is True
        assert run.status().is_scripted
        assert {key: report[key] for key in NOTHING_WRONG} == NOTHING_WRONG
        assert report["steps"] == 3
        stages = dict(run.query("SELECT rejection_stage, COUNT(*) FROM samples GROUP BY 1"))
        assert set(stages) <= {None, "parse", "load", "reset"}
        # Two turns: the first answer is not paid, whatever it is.
        turns = run.query("SELECT DISTINCT episode_return FROM samples WHERE role = 'agent'")
        assert set(turns) == {(0.0,), (1.0,)}


@pytest.mark.timeout(120)
def test_scripted_run_goes_on_after_a_kill(tmp_path: Path) -> None:
    with whole_run(tmp_path / "run", None, **FAST | {"train__steps": 30}) as run:
        run.start()
        run.wait_steps(3)
        run.kill_all()
        run.end(30.0)
        run.values["train.steps"] = run.num_steps() + 3
        run.finish()
        report = run.report()
        assert {key: report[key] for key in NOTHING_WRONG} == NOTHING_WRONG
        assert report["steps"] == run.values["train.steps"]


@pytest.mark.timeout(120)
def test_swallowed_and_hanging_work_is_cut_by_name_and_the_run_goes_on(tmp_path: Path) -> None:
    faults = {"scripted__swallow_share": 0.05, "scripted__hang_share": 0.01}
    faults |= {"async__staleness": 0, "async__straggler_s": 2.0}
    with whole_run(tmp_path / "run", None, **FAST | faults) as run:
        run.finish()
        report = run.report()
        assert "nothing came for 2 s; cut: " in (run.folder.logs / "coordinator.log").read_text()
        assert report["samples_over_bound"] == report["samples_trained_twice"] == 0


@pytest.mark.timeout(120)
def test_a_run_of_a_version_with_fewer_keys_is_resumed_with_their_defaults(tmp_path: Path) -> None:
    with whole_run(tmp_path / "run", None, **FAST) as run:
        run.finish()
        # What an earlier version left: without a section, and so with another digest throughout.
        config = json.loads(run.folder.config.read_text())
        del config["guards"]
        run.folder.config.write_text(json.dumps(config))
        info = json.loads(run.folder.info.read_text())
        del info["config_digests"]
        run.folder.info.write_text(json.dumps(info | {"config_digest": "of-fewer-keys"}))
        with contextlib.closing(sqlite3.connect(run.folder.ledger)) as ledger:
            ledger.execute("UPDATE meta SET value = 'of-fewer-keys' WHERE key = 'config_digest'")
            ledger.commit()
        for steps in (5, 7):
            run.values["train.steps"] = steps
            run.finish()
        report = run.report()
        assert {key: report[key] for key in NOTHING_WRONG} == NOTHING_WRONG
        assert report["steps"] == 7
