from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from spade_async.config.schema import Config
from spade_async.errors import WeightsError
from spade_async.learner.learner import Learner
from spade_async.learner.quarantine import read_back
from spade_async.learner.resume_point import ResumePoint
from spade_async.transport.messages import TrainingBatch
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore, load_weights
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import make_batch, make_sample, random_samples

torch.set_num_threads(1)

CONFIG = Config.model_validate({"learner": {"lr": 1e-2}, "checkpoint": {"keep": 2}})


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


def make_learner(
    run_dir: Path,
    model_folder: Path,
    version: PolicyVersion = PolicyVersion(0, 0),  # noqa: B008
    checkpoint: str | None = None,
) -> Learner:
    point = ResumePoint.of(
        {
            "branch": version.branch,
            "step": version.step,
            "checkpoint": checkpoint,
            "model_folder": str(model_folder),
            "keep_checkpoints": [],
        }
    )
    return Learner(CONFIG, run_dir, point, FileWeightStore(run_dir / "weights", keep=10))


def batch(step: int, *, branch: int = 0, checkpoint: bool = False) -> TrainingBatch:
    return make_batch(random_samples(8, seed=step), step, branch=branch, checkpoint=checkpoint)


def test_start_publishes_the_start_model_under_the_resume_version(
    tmp_path: Path, model_folder: Path
) -> None:
    learner = make_learner(tmp_path, model_folder, PolicyVersion(0, 0))
    message = learner.start()
    assert PolicyVersion.unpack(message.version) == PolicyVersion(0, 0)
    loaded = load_weights(message.location, message.digest)
    for name, value in learner.state.model.state_dict().items():
        assert torch.equal(loaded[name], value), name


def test_a_step_reports_what_it_published_and_saved(tmp_path: Path, model_folder: Path) -> None:
    learner = make_learner(tmp_path, model_folder)
    first = learner.start()
    sent = batch(1, checkpoint=True)
    report = learner.train(sent, wait_s=1.5)
    assert (report.branch, report.step, report.applied) == (0, 1, True)
    assert report.sample_ids == sent.sample_ids
    assert report.checkpoint == "branch-0-step-1"
    assert (tmp_path / "checkpoints" / "branch-0-step-1" / "config.json").exists()
    assert report.quarantine is None
    assert report.digest != first.digest
    assert report.wait_s == 1.5
    loaded = load_weights(report.location, report.digest)
    assert torch.equal(loaded["model.norm.weight"], learner.state.parameters["model.norm.weight"])
    assert report.metrics.keys() >= {
        "learner/loss",
        "learner/grad_norm",
        "learner/lr",
        "learner/entropy_designer",
        "learner/entropy_agent",
        "learner/kl_generator",
        "learner/ratio_mean",
        "learner/ratio_max",
        "learner/clip_share",
        "learner/ess",
        "learner/tokens",
        "learner/tokens_per_s",
        "learner/padding_share",
        "learner/micro_batches",
        "learner/samples",
        "learner/samples_zero_advantage",
        "learner/nonfinite",
        "learner/update_s",
        "learner/publish_s",
        "learner/publish_bytes",
        "learner/checkpoint_s",
        "learner/ratio_mean_agent",
        "learner/ratio_mean_designer",
    }
    assert all(isinstance(value, float) for value in report.metrics.values())


def test_a_step_without_a_checkpoint_names_none(tmp_path: Path, model_folder: Path) -> None:
    report = make_learner(tmp_path, model_folder).train(batch(1))
    assert report.checkpoint is None
    assert "learner/checkpoint_s" not in report.metrics


def test_a_batch_that_comes_twice_is_trained_once(tmp_path: Path, model_folder: Path) -> None:
    learner = make_learner(tmp_path, model_folder)
    first = learner.train(batch(1))
    again = learner.train(batch(1))
    assert again is first
    assert learner.state.version == PolicyVersion(0, 1)


def test_an_empty_batch_is_a_step_that_changes_nothing(tmp_path: Path, model_folder: Path) -> None:
    learner = make_learner(tmp_path, model_folder)
    learner.start()
    assert learner.train(batch(1)).applied
    before = {n: p.detach().clone() for n, p in learner.state.parameters.items()}
    full = batch(2)
    arrays = ("advantages", "staleness", "token_ids", "loss_mask", "generator_logprobs", "versions")
    nothing = {name: getattr(full, name)[:0] for name in arrays}
    lists: dict[str, list[object]] = {"sample_ids": [], "roles": [], "groups": [], "worths": []}
    empty = dataclasses.replace(full, offsets=full.offsets[:1], **nothing, **lists)
    report = learner.train(empty)
    assert report.applied
    assert report.sample_ids == []
    assert report.metrics["learner/skipped"] == 1.0
    for name, value in before.items():
        assert torch.equal(value, learner.state.parameters[name].detach()), name
    assert learner.train(batch(3)).applied


@pytest.mark.parametrize(("branch", "step"), [(0, 3), (1, 2), (0, 0)])
def test_a_batch_out_of_order_is_refused(
    tmp_path: Path, model_folder: Path, branch: int, step: int
) -> None:
    learner = make_learner(tmp_path, model_folder)
    learner.train(batch(1))
    with pytest.raises(ValueError, match=f"batch {branch}.{step} does not follow .* 0.1"):
        learner.train(batch(step, branch=branch))


def poisoned(step: int) -> TrainingBatch:
    # What a generator with NaN logits would send; `pack` refuses it, so it is made by hand.
    good = batch(step)
    logprobs = good.generator_logprobs.copy()
    logprobs[int(np.argmax(good.loss_mask))] = np.nan
    return dataclasses.replace(good, generator_logprobs=logprobs)


def overflowing(step: int) -> TrainingBatch:
    huge = make_sample("huge", advantage=3.4e38, logprobs=(0, 0, -9, -9))
    return make_batch([huge], step)


@pytest.mark.parametrize("make_bad", [poisoned, overflowing])
def test_a_non_finite_update_is_set_aside_and_the_run_goes_on(
    tmp_path: Path, model_folder: Path, make_bad
) -> None:
    learner = make_learner(tmp_path, model_folder)
    before = learner.train(batch(1))
    bad = make_bad(2)
    report = learner.train(bad)
    assert not report.applied
    assert report.metrics["learner/nonfinite"] == 1.0
    assert report.quarantine == "batch-0-2.npz"
    # The same weights under the new version.
    old, new = (load_weights(r.location, r.digest) for r in (before, report))
    assert all(torch.equal(old[name], new[name]) for name in old)
    assert report.location != before.location

    stored = read_back(tmp_path / "quarantine" / "batch-0-2.npz")
    for field in dataclasses.fields(TrainingBatch):
        found, sent = getattr(stored, field.name), getattr(bad, field.name)
        if isinstance(sent, np.ndarray):
            np.testing.assert_array_equal(found, sent)
        else:
            assert found == sent
    facts = json.loads((tmp_path / "quarantine" / "batch-0-2.json").read_text())
    assert facts["weights_before"] == "0.1"
    assert facts["reason"]

    assert learner.train(batch(3)).applied


def test_a_resumed_learner_continues_under_the_new_branch(
    tmp_path: Path, model_folder: Path
) -> None:
    first = make_learner(tmp_path, model_folder)
    first.train(batch(1, checkpoint=True))
    reference = first.train(batch(2))

    second = make_learner(tmp_path, model_folder, PolicyVersion(1, 1), "branch-0-step-1")
    published = second.start()
    assert PolicyVersion.unpack(published.version) == PolicyVersion(1, 1)
    report = second.train(dataclasses.replace(batch(2), branch=1, checkpoint=True))
    assert report.checkpoint == "branch-1-step-2"
    for name, value in load_weights(reference.location, reference.digest).items():
        assert torch.equal(value, load_weights(report.location, report.digest)[name]), name


def test_a_checkpoint_of_another_step_than_the_ledgers_is_refused(
    tmp_path: Path, model_folder: Path
) -> None:
    make_learner(tmp_path, model_folder).train(batch(1, checkpoint=True))
    with pytest.raises(WeightsError, match="is of step 1, the ledger wants step 5"):
        make_learner(tmp_path, model_folder, PolicyVersion(1, 5), "branch-0-step-1")


def test_a_welcome_without_a_field_is_refused_by_its_name() -> None:
    with pytest.raises(WeightsError, match="lacks 'model_folder'"):
        ResumePoint.of({"branch": 0, "step": 0, "checkpoint": None})


def test_a_model_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no config.json: check model.path"):
        make_learner(tmp_path, tmp_path / "nowhere")


def test_old_checkpoints_are_removed_while_training(tmp_path: Path, model_folder: Path) -> None:
    learner = make_learner(tmp_path, model_folder)
    for step in range(1, 5):
        learner.train(batch(step, checkpoint=True))
    names = sorted(p.name for p in (tmp_path / "checkpoints").iterdir())
    assert names == ["branch-0-step-3", "branch-0-step-4"]
