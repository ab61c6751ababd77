"""Routers: their load in closed forms, and the engine's choice of experts followed exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from spade_async.config.schema import Config
from spade_async.engine.builtin.model import open_model
from spade_async.grpo.samples import TrainSample
from spade_async.learner.metrics import TokenFigures
from spade_async.learner.state import LearnerState
from spade_async.learner.update import Updater
from spade_async.types import NO_EXPERT, PolicyVersion
from tests.support.hf_models import make_model
from tests.support.train_samples import random_samples

torch.set_num_threads(1)

EXPERTS, CHOSEN, LAYERS = 8, 2, 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("moe"), "qwen3_moe")


def make(folder: Path, **learner: Any) -> tuple[LearnerState, Updater]:
    config = Config.model_validate({"learner": learner})
    state = LearnerState.create(folder, config.learner, PolicyVersion(0, 0))
    return state, Updater(state, config)


def routes(state: LearnerState, samples: list[TrainSample]) -> list[TrainSample]:
    """The samples with the experts that the model chooses by itself."""
    found = []
    for sample in samples:
        kept: list[Tensor] = []
        handles = [
            m.register_forward_hook(lambda *args, kept=kept: kept.append(args[2][2]))
            for m in state.scorer.routers.modules
        ]
        with torch.no_grad():
            state.model(input_ids=torch.from_numpy(sample.trace.token_ids.astype(np.int64))[None])
        for handle in handles:
            handle.remove()
        found.append(with_experts(sample, torch.stack(kept, dim=1).numpy()))
    return found


def with_experts(sample: TrainSample, experts: np.ndarray) -> TrainSample:
    return replace(sample, trace=replace(sample.trace, experts=experts.astype(np.int16)))


def step(state: LearnerState, updater: Updater, samples: list[TrainSample]) -> tuple[Any, ...]:
    figures = TokenFigures()
    loss = updater.accumulate(samples, figures)
    gradient = torch.cat(
        [p.grad.flatten() for p in state.parameters.values() if p.grad is not None]
    )
    return loss, gradient, figures


def test_routers_without_preference_choose_the_first_experts(folder: Path) -> None:
    state, updater = make(folder)
    for router in state.scorer.routers.modules:
        router.weight.data.zero_()
    figures = step(state, updater, random_samples(6))[2]
    metrics = figures.metrics()
    # Probabilities are equal and two experts get all tokens: E/k times the even load.
    assert metrics["learner/experts_balance"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["learner/experts_max_load"] == pytest.approx(EXPERTS / CHOSEN)
    assert metrics["learner/experts_idle_share"] == pytest.approx(1 - CHOSEN / EXPERTS)
    # Every token that is read counts once per layer, padding does not.
    read = sum(int(np.flatnonzero(s.trace.loss_mask)[-1]) for s in random_samples(6))
    assert figures.load.chosen_LE.sum() == read * CHOSEN * LAYERS


def test_following_the_own_choice_changes_nothing(folder: Path) -> None:
    state, updater = make(folder)
    samples = random_samples(6)
    loss, gradient, _ = step(state, updater, samples)
    followed = routes(state, samples)
    again, same_gradient, _ = step(state, updater, followed)
    assert again == pytest.approx(loss, abs=1e-6)
    torch.testing.assert_close(same_gradient, gradient, rtol=0, atol=1e-6)
    unknown = [with_experts(s, np.full((len(s.trace.token_ids), 2, 2), NO_EXPERT)) for s in samples]
    assert step(state, updater, unknown)[0] == pytest.approx(loss, abs=1e-6)


def test_two_given_experts_are_a_model_of_two_experts(folder: Path, tmp_path: Path) -> None:
    big, big_updater = make(folder)
    make_model(tmp_path, "qwen3_moe", num_experts=2)
    small = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    wanted = [1, 5]
    weights = dict(big.model.state_dict())
    for name, tensor in weights.items():
        if "experts" in name or "gate.weight" in name:
            weights[name] = tensor[wanted].clone()
    small.load_state_dict(weights)
    small.save_pretrained(tmp_path)
    state, updater = make(tmp_path)
    samples = random_samples(6)
    loss = step(state, updater, samples)[0]
    shape = (LAYERS, CHOSEN)
    given = [
        with_experts(s, np.broadcast_to(wanted, (len(s.trace.token_ids), *shape))) for s in samples
    ]
    found = step(big, big_updater, given)
    assert found[0] == pytest.approx(loss, abs=1e-6)
    assert found[0] != pytest.approx(step(big, big_updater, samples)[0], abs=1e-4)

    # A layer that is computed again in the backward pass goes through the same experts.
    again, again_updater = make(folder, activation_checkpointing=True)
    recomputed = step(again, again_updater, given)
    assert recomputed[0] == pytest.approx(found[0], abs=1e-6)
    torch.testing.assert_close(recomputed[1], found[1], rtol=0, atol=1e-6)


def test_what_was_replayed_and_what_that_changed_is_counted(folder: Path) -> None:
    state, updater = make(folder)
    samples = random_samples(6)
    assert step(state, updater, samples)[2].metrics()["learner/experts_replayed_share"] == 0.0
    followed = routes(state, samples)
    metrics = step(state, updater, followed)[2].metrics()
    assert metrics["learner/experts_replayed_share"] == 1.0
    assert metrics["learner/experts_changed_share"] == 0.0
    # Of each pair of experts one is exchanged for another that was not chosen.
    moved = []
    for sample in followed:
        experts = np.array(sample.trace.experts)
        free = [[next(e for e in range(EXPERTS) if e not in k) for k in row] for row in experts]
        experts[:, :, 1] = free
        experts[0] = NO_EXPERT
        moved.append(with_experts(sample, experts))
    metrics = step(state, updater, moved)[2].metrics()
    # The first layer's router would have kept to its own; the second one meets other inputs.
    assert 0.25 <= metrics["learner/experts_changed_share"] <= 0.75
    read = sum(int(np.flatnonzero(s.trace.loss_mask)[-1]) for s in samples)
    assert metrics["learner/experts_replayed_share"] == pytest.approx((read - len(samples)) / read)


def test_experts_of_another_model_are_refused_by_name(folder: Path) -> None:
    state, updater = make(folder)
    sample = random_samples(1)[0]
    length = len(sample.trace.token_ids)
    for experts in (
        np.zeros((length, LAYERS + 1, CHOSEN)),
        np.zeros((length, LAYERS, CHOSEN + 1)),
        np.full((length, LAYERS, CHOSEN), EXPERTS),
    ):
        with pytest.raises(ValueError, match="generators and learner need the same model folder"):
            step(state, updater, [with_experts(sample, experts)])


def test_engine_and_learner_agree_on_every_token(folder: Path) -> None:
    state, _ = make(folder)
    engine = open_model(folder, 64)
    ids = torch.tensor([[5, 9, 33, 12, 7, 60, 21, 8]])
    cache = engine.new_cache(1, 64)
    prefill = engine.forward(cache, 0, ids[:, :5], torch.arange(5)[None], torch.tensor([4]))
    one = torch.tensor([0])
    found = [prefill[0]] + [
        engine.forward(cache, 0, ids[:, place : place + 1], torch.tensor([[place]]), one)[0]
        for place in range(5, 8)
    ]
    with torch.no_grad():
        expected = state.model(input_ids=ids).logits[0, 4:]
    torch.testing.assert_close(torch.stack(found), expected, rtol=0, atol=1e-4)
