"""A whole run that nothing disturbs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from spade_async.ledger import LedgerReader
from spade_async.sandbox_policy import LEVELS
from spade_async.types import PolicyVersion, Role
from tests.support.whole_run import START_LIMIT_S, Ended, WholeRun, whole_run

NOTHING_WRONG = {
    "samples_lost": 0,
    "samples_trained_twice": 0,
    "samples_over_bound": 0,
    "tokens_discarded_for_age": 0,
    "lost_to_rollback": 0,
    "nonfinite_updates": 0,
}


@pytest.mark.timeout(150)
def test_train_passes_its_steps_through_all_processes(finished: tuple[WholeRun, Ended]) -> None:
    run, ended = finished
    assert "held-out accuracy, weights 0.0 -> 0.3" in ended.out
    status = run.status()
    assert (status.state, status.step, status.steps, status.failure) == ("finished", 3, 3, None)
    report = run.report()
    assert {key: report[key] for key in NOTHING_WRONG} == NOTHING_WRONG
    assert (report["steps"], report["restarts"]) == (3, 0)
    assert report["designs"] >= 4
    assert report["samples_trained"] > 0
    assert report["wall_seconds"] > 0
    assert [row["n"] for row in report["held_out"]] == [4, 4, 4, 4, 16]
    for row in report["held_out"]:  # every instance was scored under both versions
        assert row["difference"] == pytest.approx(row["trained"] - row["base"])
        assert row["difference_se"] > 0


def test_resume_of_a_finished_run_says_so_and_starts_nothing(
    finished: tuple[WholeRun, Ended], tmp_path: Path
) -> None:
    run, _ = finished
    root = tmp_path / "run"
    shutil.copytree(run.root, root)
    with whole_run(root, run.values["model.path"]) as again:
        before = again.info()
        ended = again.finish(START_LIMIT_S)
        assert "finished already" in ended.out
        assert "held-out accuracy, weights 0.0 -> 0.3" in ended.out
        assert again.info() == before
        assert again.query("SELECT MAX(packed >> 32) FROM versions") == [(0,)]


def test_every_process_of_a_run_left_its_log_and_no_error(
    finished: tuple[WholeRun, Ended],
) -> None:
    run, _ = finished
    logs = {log.name: log.read_text() for log in run.folder.logs.glob("*.log")}
    assert set(logs) == {"coordinator.log", "gen-0.log", "learner.log"}
    assert [text for text in logs.values() if " ERROR " in text or "Traceback" in text] == []


def test_what_confined_the_code_is_kept_with_the_run(finished: tuple[WholeRun, Ended]) -> None:
    run, _ = finished
    kept = json.loads(run.folder.jail("gen-0").read_text())
    level = kept["holds"]["level"]
    assert level in LEVELS
    assert [profile["name"] for profile in kept["asked"]["profiles"]] == ["compute"]
    events = EventAccumulator(str(run.folder.tensorboard))
    events.Reload()
    (shown,) = events.Tensors("run/jail")
    (text,) = shown.tensor_proto.string_val
    assert f"gen-0: level {level}; missing: " in text.decode()
    # Which steps have a point depends on when heartbeats came; what a point says does not.
    scalars = set(events.Tags()["scalars"])
    for tag in {"jail/broker_restarts", "jail/template_restarts"} & scalars:
        assert {event.value for event in events.Scalars(tag)} == {0.0}


@pytest.mark.timeout(150)
def test_bound_0_trains_every_token_under_the_version_just_before(
    tmp_path: Path, nano_model: Path
) -> None:
    with whole_run(tmp_path / "run", nano_model, async__staleness=0) as run:
        run.finish()
        with LedgerReader.open(run.folder.ledger) as ledger:
            rows = ledger.query(
                "SELECT b.branch, b.step, r.sample_id, r.staleness FROM batches b"
                " JOIN batch_samples r USING (ordinal) WHERE b.state = 'consumed'"
            )
            assert {row[1] for row in rows} == {1, 2, 3}
            assert {row[3] for row in rows} == {0}
            roles = set()
            for branch, step, sample_id, _ in rows:
                sample = ledger.sample(sample_id)
                assert sample is not None
                roles.add(sample.role)
                trace = ledger.trace(sample_id)
                sampled = trace.versions[trace.loss_mask.astype(bool)]
                assert set(sampled.tolist()) == {PolicyVersion(branch, step - 1).packed}
        assert Role.AGENT.value in roles
        report = run.report()
        assert {key: report[key] for key in NOTHING_WRONG} == NOTHING_WRONG
