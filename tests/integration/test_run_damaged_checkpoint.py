"""A damaged checkpoint at a resume: the one before it is used, by name, and nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.whole_run import WholeRun, whole_run

STEPS = {
    "scripted__token_s": 0.0005, "scripted__learner_s": 0.01, "train__steps": 6,
    "checkpoint__keep": 3,
    # So wide that the steps that are undone make no sample too old.
    "async__staleness": 30,
}  # fmt: skip


def alerts(run: WholeRun) -> list[str]:
    if not run.folder.alerts.exists():
        return []
    told = [json.loads(line) for line in run.folder.alerts.read_text().splitlines()]
    return [alert["text"] for alert in told if alert["kind"] == "checkpoint_damaged"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("num_damaged", [2])
def test_the_checkpoint_before_a_damaged_one_is_used_and_named(
    tmp_path: Path, num_damaged: int
) -> None:
    with whole_run(tmp_path / "run", None, **STEPS) as run:
        run.finish()
        trained = {row[0] for row in run.query("SELECT sample_id FROM batch_samples")}
        for step in range(7 - num_damaged, 7):
            folder = run.folder.checkpoints / f"branch-0-step-{step}"
            (target,) = folder.glob("*.safetensors")
            target.write_bytes(target.read_bytes()[: target.stat().st_size // 2])
        run.values["train.steps"] = 8
        run.finish()
        (told,) = alerts(run)
        for step in range(7 - num_damaged, 7):
            name = f"branch-0-step-{step}"
            assert f"checkpoint {name} is damaged (" in told
            assert (run.folder.checkpoints / f"damaged-{name}").is_dir()
        report = run.report()
        assert report["steps"] == 8
        assert (report["samples_lost"], report["samples_trained_twice"]) == (0, 0)
        # Steps after the good checkpoint were trained again, with what they had before.
        kept = {row[0] for row in run.query("SELECT sample_id FROM batch_samples")}
        assert trained <= kept
        assert report["lost_to_rollback"] == 0
