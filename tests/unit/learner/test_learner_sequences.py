"""An episode of several token sequences is one unit of loss: not divided, not counted twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from spade_async.config.schema import Config
from spade_async.grpo.samples import TrainSample, sequences
from spade_async.learner.learner import Learner
from spade_async.learner.metrics import TokenFigures
from spade_async.learner.resume_point import ResumePoint
from spade_async.learner.state import LearnerState
from spade_async.learner.update import Updater
from spade_async.types import PolicyVersion, TokenTrace
from spade_async.weights.store import FileWeightStore
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import make_batch, make_sample, random_samples

torch.set_num_threads(1)
IDS = [5, 6, 7, 8, 9, 10, 11, 12, 13]
MASK = [0, 0, 1, 1, 0, 0, 1, 1, 1]
LOGPROBS = [0.0, 0.0, -3.0, -4.0, 0.0, 0.0, -2.0, -5.0, -3.5]
TURN = 4
"""Where the second turn's observation begins."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


def one_sequence() -> TrainSample:
    return make_sample("e", advantage=0.625, token_ids=IDS, loss_mask=MASK, logprobs=LOGPROBS)


def turn_by_turn() -> list[TrainSample]:
    """The same episode told anew at its second turn, by a template that leaves nothing out."""
    second = np.array(MASK) * (np.arange(len(MASK)) >= TURN)
    parts = [
        make_sample("e", token_ids=IDS[:TURN], loss_mask=MASK[:TURN], logprobs=LOGPROBS[:TURN]),
        make_sample("e", token_ids=IDS, loss_mask=second.tolist(), logprobs=LOGPROBS),
    ]
    names = ("token_ids", "loss_mask", "generator_logprobs", "versions")
    joined = [np.concatenate([getattr(p.trace, name) for p in parts]) for name in names]
    trace = TokenTrace(joined[0], joined[1], joined[2], joined[3], (0, TURN))
    return sequences(replace(one_sequence(), trace=trace))


def accumulated(folder: Path, samples: list[TrainSample], rule: str) -> tuple[float, torch.Tensor]:
    config = Config.model_validate({"learner": {"correction": {"rule": rule}}})
    state = LearnerState.create(folder, config.learner, PolicyVersion(0, 0))
    loss = Updater(state, config).accumulate(samples, TokenFigures(2.0))
    grads = [p.grad.flatten() for p in state.parameters.values() if p.grad is not None]
    return loss, torch.cat(grads)


@pytest.mark.parametrize("rule", ["tis_token", "cispo", "none"])
def test_loss_and_gradient_do_not_see_how_an_episode_is_cut(folder: Path, rule: str) -> None:
    others = random_samples(6)
    loss, gradient = accumulated(folder, [one_sequence(), *others], rule)
    spread_loss, spread = accumulated(folder, [*turn_by_turn(), *others], rule)
    assert spread_loss == pytest.approx(loss, abs=1e-6)
    torch.testing.assert_close(spread, gradient, rtol=1e-4, atol=1e-7)


def test_the_report_names_the_episode_once(tmp_path: Path, folder: Path) -> None:
    start = {"branch": 0, "step": 0, "checkpoint": None, "keep_checkpoints": []}
    point = ResumePoint.of(start | {"model_folder": str(folder)})
    learner = Learner(Config(), tmp_path, point, FileWeightStore(tmp_path / "weights", keep=2))
    others = random_samples(3)
    batch = make_batch([others[0], *turn_by_turn(), *others[1:]], 1)
    assert len(batch.sample_ids) == 5
    report = learner.train(batch, wait_s=0.0, should_stop=lambda: False)
    assert report.sample_ids == [others[0].sample_id, "e", *(s.sample_id for s in others[1:])]
    assert report.metrics["learner/samples"] == 4.0
    assert report.metrics["learner/tokens"] == float(batch.loss_mask.sum())
    # What the learner said of the tokens lies in the batch's order, turn after turn.
    assert len(report.token_logprobs) == int(batch.loss_mask.sum())
    assert np.isfinite(report.token_logprobs).all()
