"""Updates that are not finite: alerts, and after so many in a row a stop."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.coordinator.process import Coordinator
from spade_async.errors import ProcessFailure
from spade_async.ledger import LedgerReader
from spade_async.telemetry.status import read_status
from spade_async.transport import messages as m
from tests.support.fake_hub import FakeHub
from tests.support.scripted_run import ScriptedGenerator, ScriptedLearner, hello

CONFIG = {
    "train": {"steps": 8},
    "designer": {"group_size": 4, "groups_per_step": 1},
    "agent": {"seeds_per_environment": 2, "groups_per_step": 6},
    "eval": {"every": 8, "instances_per_level": 2},
    "checkpoint": {"every": 100},
    "learner": {"max_nonfinite": 3},
}


class FailingLearner(ScriptedLearner):
    """Says of the given steps that their update was not finite."""

    def __init__(self, bad: set[int]) -> None:
        super().__init__()
        self._bad = bad

    def _report(self, batch: m.TrainingBatch) -> m.StepReport:
        report = super()._report(batch)
        if batch.step not in self._bad:
            return report
        name = f"batch-{batch.branch}-{batch.step}.npz"
        return dataclasses.replace(report, applied=False, quarantine=name)


class NaNGenerator(ScriptedGenerator):
    """Reports NaN for a token of every episode."""

    def _episode(self, task: m.PlayTask, index: int) -> m.EpisodeResult:
        found = super()._episode(task, index)
        logprobs = found.generator_logprobs.copy()
        logprobs[-1] = np.nan
        return dataclasses.replace(found, generator_logprobs=logprobs)


def run(
    root: Path, learner: ScriptedLearner, generator: ScriptedGenerator | None = None
) -> RunFolder:
    root.mkdir()
    folder = RunFolder(root)
    folder.info.write_text(json.dumps({"model_folder": "m"}))
    hub = FakeHub({"learner": learner, "gen-0": generator or ScriptedGenerator()}, 0)
    coordinator = Coordinator(Config.model_validate(CONFIG), folder, hub)  # type: ignore[arg-type]
    for name in ("learner", "gen-0"):
        hub.say(name, hello(name))
    hub.say("gen-0", m.Credit(tasks=16))
    asyncio.run(coordinator.run())
    return folder


def test_three_in_a_row_end_the_run_with_a_checkpoint_and_one_cause(tmp_path: Path) -> None:
    learner = FailingLearner({2, 4, 5, 6})
    with pytest.raises(ProcessFailure, match="3 updates in a row were not finite") as caught:
        run(tmp_path / "run", learner)
    folder = RunFolder(tmp_path / "run")
    assert [batch.step for batch in learner.trained] == [1, 2, 3, 4, 5, 6]
    # Only the last one is saved before it is known how it ends.
    assert [batch.step for batch in learner.trained if batch.checkpoint] == [6]
    status = read_status(folder.status)
    assert status is not None
    assert (status.state, status.failure) == ("failed", str(caught.value))
    for part in ("batch-0-6", "checkpoint c-0-6", "spade-async replay", "--resume"):
        assert part in str(caught.value)
    with LedgerReader.open(folder.ledger) as ledger:
        texts = [alert.text for alert in ledger.alerts()]
        assert ledger.nonfinite_updates() == 4
    told = [json.loads(line) for line in folder.alerts.read_text().splitlines()]
    # The same sentence with other numbers is told once a minute.
    assert [(a["step"], a["kind"]) for a in told] == [
        (1, "nonfinite_update"),
        (6, "nonfinite_stop"),
    ]
    assert [a.kind for a in status.alerts] == ["nonfinite_update", "nonfinite_stop"]
    assert len(texts) == 2
    events = EventAccumulator(str(folder.tensorboard))
    events.Reload()
    shown = events.Tensors("run/alerts")
    # The last one comes after the last step: at a step that a resume writes anew.
    assert [event.step for event in shown] == [2, 7]
    assert b"batch-0-2.npz" in shown[0].tensor_proto.string_val[0]


def test_fewer_in_a_row_do_not_end_it(tmp_path: Path) -> None:
    learner = FailingLearner({1, 2, 4, 5, 7, 8})
    run(tmp_path / "run", learner)
    assert [batch.step for batch in learner.trained] == list(range(1, 9))


def test_a_nan_of_a_generator_reaches_the_learner_which_sets_it_aside(tmp_path: Path) -> None:
    learner = ScriptedLearner()
    run(tmp_path / "run", learner, NaNGenerator())
    trained = [batch for batch in learner.trained if "agent" in batch.roles]
    assert all(np.isnan(batch.generator_logprobs).any() for batch in trained)
    assert [batch.step for batch in learner.trained] == list(range(1, 9))
