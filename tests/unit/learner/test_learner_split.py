"""Micro-batches never change the gradient: every denominator is of the whole step."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
import torch

import spade_async.learner.update as update_module
from spade_async.config.schema import Config
from spade_async.grpo.samples import TrainSample
from spade_async.learner.metrics import TokenFigures
from spade_async.learner.state import LearnerState, load_model
from spade_async.learner.update import Updater
from spade_async.types import PolicyVersion, Role
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import make_sample, random_samples

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


def gradient(
    folder: Path,
    samples: list[TrainSample],
    plan: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
) -> tuple[float, torch.Tensor]:
    """Loss and gradient of a step that is cut as `plan` says."""
    monkeypatch.setattr(update_module, "plan_micro_batches", lambda *_: plan)
    config = Config.model_validate({"learner": {"kl_to_start": 0.1, "entropy_weight": 0.01}})
    state = LearnerState.create(folder, config.learner, PolicyVersion(0, 0))
    state.model.to(dtype)
    updater = Updater(state, config, load_model(folder).to(dtype))
    loss = updater.accumulate(samples, TokenFigures(2.0))
    grads = [p.grad.flatten() for p in state.parameters.values() if p.grad is not None]
    return loss, torch.cat(grads)


# A split regroups sums: in float32 an entry may differ by what its terms are rounded by, in float64
# nothing is left of that, so there is no other cause.
BOUNDS = pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-13)]
)


@BOUNDS
def test_one_pass_of_eight_equals_eight_passes_of_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, bound: float
) -> None:
    samples = random_samples(8)
    loss, whole = gradient(folder, samples, [list(range(8))], monkeypatch, dtype)
    loss_apart, apart = gradient(folder, samples, [[i] for i in range(8)], monkeypatch, dtype)
    assert loss_apart == pytest.approx(loss, rel=0, abs=bound)
    torch.testing.assert_close(apart, whole, rtol=0, atol=bound)


@BOUNDS
@pytest.mark.parametrize("seed", range(3))
def test_any_split_in_any_order_equals_any_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int, dtype: torch.dtype, bound: float
) -> None:
    samples = random_samples(12, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(3):
        order = torch.randperm(12, generator=draw).tolist()
        cuts = sorted(torch.randperm(11, generator=draw)[:4].tolist())
        ends = [0, *(c + 1 for c in cuts), 12]
        plan = [order[a:b] for a, b in itertools.pairwise(ends)]
        found.append(gradient(folder, samples, plan, monkeypatch, dtype))
    for loss, grad in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=0, abs=bound)
        torch.testing.assert_close(grad, found[0][1], rtol=0, atol=bound)


def test_the_padding_of_a_step_is_a_figure(folder: Path) -> None:
    config = Config.model_validate({"learner": {"micro_batch_tokens": 1000}})
    state = LearnerState.create(folder, config.learner, PolicyVersion(0, 0))
    # 10 and 20 tokens are read; a pass costs more than 10 of padding.
    samples = [
        make_sample(str(n), token_ids=[5] * n, loss_mask=[0] * (n - 1) + [1], role=Role.AGENT)
        for n in (11, 21)
    ]
    metrics = Updater(state, config).update(samples, 1).metrics
    assert metrics["learner/padding_share"] == pytest.approx(10 / 40)
    assert metrics["learner/micro_batches"] == 1.0
    nothing = [dataclasses.replace(s, advantage=0.0) for s in samples]
    assert "learner/padding_share" not in Updater(state, config).update(nothing, 2).metrics
