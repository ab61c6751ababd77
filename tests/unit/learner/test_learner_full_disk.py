"""A learner on a full disk: it waits where it stands; the step is the one it would have been."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from spade_async.disk import room
from spade_async.disk.room import WaitCancelled
from spade_async.errors import WeightsError
from spade_async.transport.messages import StepReport, TrainingBatch
from spade_async.weights.store import load_weights
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import make_batch, random_samples
from tests.unit.learner.test_learner_steps import make_learner

torch.set_num_threads(1)

PLACES = {
    "checkpoint 0.1": "spade_async.learner.moments.save_file",
    "weights 0.1": "safetensors.torch.save_file",
    "batch 0.1, set aside": "numpy.savez",
}


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


def batch(*, spoiled: bool = False) -> TrainingBatch:
    good = make_batch(random_samples(4), 1, checkpoint=True)
    if not spoiled:
        return good
    return dataclasses.replace(good, advantages=np.full_like(good.advantages, np.nan))


def fill_once(monkeypatch: pytest.MonkeyPatch, place: str, times: int) -> list[int]:
    """Make the first `times` calls of a writer find no room, with half a file left behind."""
    module, _, name = place.rpartition(".")
    real = getattr(__import__(module, fromlist=[name]), name)
    calls = [0]

    def write(*arguments: object, **options: object) -> object:
        calls[0] += 1
        if calls[0] <= times:
            raise OSError(28, "No space left on device")
        return real(*arguments, **options)

    monkeypatch.setattr(place, write)
    return calls


@pytest.mark.parametrize("what", PLACES)
def test_a_write_that_finds_no_room_is_made_later(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(room, "RETRY_S", 0.001)
    spoiled = what.startswith("batch")
    reference = make_learner(tmp_path / "reference", model_folder).train(batch(spoiled=spoiled))

    learner = make_learner(tmp_path / "run", model_folder)
    said: list[str | None] = []
    learner.room.listen(said.append, lambda: False)
    fill_once(monkeypatch, PLACES[what], 3)
    report: StepReport = learner.train(batch(spoiled=spoiled))
    assert said == [*[f"room on the disk for {what}"] * 3, None]
    assert (report.applied, report.checkpoint) == (reference.applied, reference.checkpoint)
    expected = load_weights(reference.location, reference.digest)
    for name, value in load_weights(report.location, report.digest).items():
        assert torch.equal(value, expected[name]), name
    leftovers = [p.name for p in (tmp_path / "run").rglob(".*")]
    assert leftovers == []


def test_a_learner_that_waits_can_be_told_to_leave(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "RETRY_S", 0.001)
    learner = make_learner(tmp_path / "run", model_folder)
    learner.room.listen(lambda what: None, lambda: True)
    fill_once(monkeypatch, PLACES["checkpoint 0.1"], 1000)
    with pytest.raises(WaitCancelled):
        learner.train(batch())
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []


def test_another_fault_of_a_write_is_no_reason_to_wait(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    learner = make_learner(tmp_path / "run", model_folder)
    monkeypatch.setattr(PLACES["checkpoint 0.1"], refuse)
    with pytest.raises(WeightsError, match="Permission denied"):
        learner.train(batch())
