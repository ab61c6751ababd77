from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from spade_async.config.schema import Config
from spade_async.grpo.samples import TrainSample
from spade_async.learner.metrics import TokenFigures
from spade_async.learner.progress import UpdateCancelled
from spade_async.learner.state import LearnerState, learning_rate, load_model
from spade_async.learner.update import Updater
from spade_async.types import PolicyVersion, Role
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import make_sample, random_samples

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


def make_config(**learner: object) -> Config:
    return Config.model_validate(
        {
            "learner": {"lr": 1e-2, "warmup_steps": 0, **learner},
            "agent": {"temperature": 0.7},
            "designer": {"temperature": 1.3},
        }
    )


def make_updater(folder: Path, **learner: object) -> tuple[LearnerState, Updater]:
    config = make_config(**learner)
    state = LearnerState.create(folder, config.learner, PolicyVersion(0, 0))
    start = load_model(folder) if config.learner.kl_to_start > 0 else None
    return state, Updater(state, config, start)


def gradient(folder: Path, samples: list[TrainSample], **learner: object) -> torch.Tensor:
    state, updater = make_updater(folder, **learner)
    updater.accumulate(samples, TokenFigures(2.0))
    return torch.cat([p.grad.flatten() for p in state.parameters.values() if p.grad is not None])


def snapshot(state: LearnerState) -> dict[str, torch.Tensor]:
    found = {n: p.detach().clone() for n, p in state.parameters.items()}
    for name, parameter in state.parameters.items():
        for key, value in state.optimizer.state.get(parameter, {}).items():
            found[f"{key}.{name}"] = value.clone()
    return found


def assert_same(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> None:
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert torch.equal(value, after[name]), name


@torch.no_grad()
def sampled_logprobs(folder: Path, sample: TrainSample, temperature: float) -> np.ndarray:
    """One plain forward pass of one sequence, as the generator defines its log-probabilities."""
    ids = torch.from_numpy(sample.trace.token_ids.astype(np.int64))[None]
    logits = load_model(folder)(input_ids=ids).logits[0]
    logprobs = torch.log_softmax(logits / temperature, -1)[:-1].gather(1, ids[0, 1:, None])
    return np.concatenate([[0.0], logprobs[:, 0].numpy()]).astype(np.float32)


def on_policy(folder: Path, temperatures: dict[Role, float]) -> list[TrainSample]:
    return [
        dataclasses.replace(
            sample,
            trace=dataclasses.replace(
                sample.trace,
                generator_logprobs=sampled_logprobs(folder, sample, temperatures[sample.role]),
            ),
        )
        for sample in random_samples(12)
    ]


@pytest.mark.parametrize("kl", [0.0, 0.5])
def test_micro_batches_do_not_change_the_gradient(model_folder: Path, kl: float) -> None:
    samples = random_samples(20)
    whole = gradient(model_folder, samples, kl_to_start=kl, micro_batch_tokens=1_000_000)
    for cap in (16, 50, 100):
        parts = gradient(model_folder, samples, kl_to_start=kl, micro_batch_tokens=cap)
        torch.testing.assert_close(parts, whole, atol=1e-6, rtol=1e-5)


def test_the_gradient_is_that_of_a_token_mean_per_role(model_folder: Path) -> None:
    # Each role alone, then both: the roles' gradients add with their weights.
    samples = random_samples(12)
    agents = [s for s in samples if s.role is Role.AGENT]
    designers = [s for s in samples if s.role is Role.DESIGNER]
    both = gradient(model_folder, samples, designer_weight=0.5)
    apart = gradient(model_folder, agents) + gradient(model_folder, designers, designer_weight=0.5)
    torch.testing.assert_close(both, apart, atol=1e-6, rtol=1e-5)


def test_skipping_samples_without_advantage_does_not_change_the_gradient(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [
        dataclasses.replace(s, advantage=0.0) if i % 2 else s
        for i, s in enumerate(random_samples(12))
    ]
    skipped = gradient(model_folder, samples)
    monkeypatch.setattr("spade_async.learner.update.has_gradient", lambda *_: True)
    torch.testing.assert_close(skipped, gradient(model_folder, samples), atol=1e-6, rtol=1e-5)


def test_a_nan_under_a_zero_mask_changes_nothing(model_folder: Path) -> None:
    samples = random_samples(6)
    poisoned = [
        dataclasses.replace(
            s,
            trace=dataclasses.replace(
                s.trace,
                generator_logprobs=np.where(
                    s.trace.loss_mask, s.trace.generator_logprobs, np.nan
                ).astype(np.float32),
            ),
        )
        for s in samples
    ]
    assert torch.equal(gradient(model_folder, samples), gradient(model_folder, poisoned))


def test_unchanged_weights_give_ratio_one_at_each_roles_temperature(model_folder: Path) -> None:
    samples = on_policy(model_folder, {Role.AGENT: 0.7, Role.DESIGNER: 1.3})
    _, updater = make_updater(model_folder)
    metrics = updater.update(samples, 1).metrics
    assert metrics["learner/ratio_mean_agent"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["learner/ratio_mean_designer"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["learner/ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["learner/kl_generator"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["learner/ess"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["learner/clip_share"] == 0.0


def test_a_temperature_handled_on_one_side_only_shows_in_the_ratio(model_folder: Path) -> None:
    samples = on_policy(model_folder, {Role.AGENT: 1.0, Role.DESIGNER: 1.3})
    _, updater = make_updater(model_folder)
    metrics = updater.update(samples, 1).metrics
    assert abs(metrics["learner/ratio_mean_agent"] - 1.0) > 0.01
    assert metrics["learner/ratio_mean_designer"] == pytest.approx(1.0, abs=1e-5)


def test_an_update_raises_the_probability_of_what_was_good(model_folder: Path) -> None:
    good = make_sample("good", token_ids=(5, 6, 7, 8), advantage=1.0)
    bad = make_sample("bad", token_ids=(5, 6, 9, 10), advantage=-1.0)
    state, updater = make_updater(model_folder, lr=1e-3)

    def logprob(sample: TrainSample) -> float:
        ids = torch.from_numpy(sample.trace.token_ids.astype(np.int64))[None]
        with torch.no_grad():
            logprobs = torch.log_softmax(state.model(input_ids=ids).logits[0], -1)
        return float(sum(logprobs[i - 1, ids[0, i]] for i in (2, 3)))

    before = logprob(good), logprob(bad)
    for step in range(1, 4):
        assert updater.update([good, bad], step).applied
    assert logprob(good) > before[0]
    assert logprob(bad) < before[1]


def test_a_non_finite_loss_leaves_weights_and_optimiser_as_they_were(model_folder: Path) -> None:
    state, updater = make_updater(model_folder)
    assert updater.update(random_samples(6), 1).applied
    before = snapshot(state)
    # Finite in the batch, infinite once two such tokens are summed.
    result = updater.update([make_sample("huge", advantage=3.4e38, logprobs=(0, 0, -9, -9))], 2)
    assert not result.applied
    assert result.reason is not None
    assert result.metrics["learner/nonfinite"] == 1.0
    assert "learner/loss" not in result.metrics
    assert all(np.isfinite(value) for value in result.metrics.values())
    assert_same(before, snapshot(state))
    assert updater.update(random_samples(6), 2).applied


@pytest.mark.parametrize("steps_before", [0, 1])
def test_weights_that_come_out_non_finite_are_put_back(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch, steps_before: int
) -> None:
    state, updater = make_updater(model_folder)
    for step in range(steps_before):
        updater.update(random_samples(6), step + 1)
    before = snapshot(state)
    real_step = state.optimizer.step

    def broken_step() -> None:
        real_step()
        with torch.no_grad():
            next(iter(state.parameters.values()))[0, 0] = float("inf")

    monkeypatch.setattr(state.optimizer, "step", broken_step)
    result = updater.update(random_samples(6, seed=1), steps_before + 1)
    assert not result.applied
    assert "is not finite after the step" in str(result.reason)
    assert_same(before, snapshot(state))


def test_a_batch_without_advantages_has_a_zero_gradient_and_no_token_figures(
    model_folder: Path,
) -> None:
    state, updater = make_updater(model_folder)
    before = snapshot(state)
    result = updater.update([make_sample("a", advantage=0.0)], 1)
    assert result.applied
    assert result.metrics["learner/loss"] == 0.0
    assert result.metrics["learner/grad_norm"] == 0.0
    assert result.metrics["learner/samples_zero_advantage"] == 1.0
    assert result.metrics["learner/tokens"] == 2.0
    assert "learner/ratio_mean" not in result.metrics
    assert "learner/entropy_agent" not in result.metrics
    after = snapshot(state)
    assert_same(before, {name: after[name] for name in before})


def test_figures_of_a_role_that_is_not_in_the_batch_are_absent(model_folder: Path) -> None:
    _, updater = make_updater(model_folder)
    metrics = updater.update([make_sample("a")], 1).metrics
    assert "learner/ratio_mean_agent" in metrics
    assert "learner/ratio_mean_designer" not in metrics
    assert "learner/entropy_designer" not in metrics
    assert "learner/kl_to_start" not in metrics


def test_kl_to_start_is_zero_at_the_start_and_grows_as_the_policy_moves(
    model_folder: Path,
) -> None:
    _, updater = make_updater(model_folder, kl_to_start=0.1)
    samples = random_samples(8)
    first = updater.update(samples, 1).metrics["learner/kl_to_start"]
    second = updater.update(samples, 2).metrics["learner/kl_to_start"]
    assert first == pytest.approx(0.0, abs=1e-6)
    assert second > 1e-4


def test_a_large_kl_weight_holds_the_policy_at_the_start(model_folder: Path) -> None:
    samples = [s for s in random_samples(20) if s.role is Role.AGENT]
    ends = []
    for weight in (1e-6, 10.0):
        _, updater = make_updater(model_folder, kl_to_start=weight, lr=3e-3)
        for step in range(1, 9):
            metrics = updater.update(samples, step).metrics
        ends.append(metrics["learner/kl_to_start"])
    assert ends[1] < ends[0] / 2


def test_kl_without_a_start_model_is_refused(model_folder: Path) -> None:
    config = make_config(kl_to_start=0.1)
    state = LearnerState.create(model_folder, config.learner, PolicyVersion(0, 0))
    with pytest.raises(ValueError, match=r"learner.kl_to_start=0.1 needs the start model"):
        Updater(state, config)


def test_a_token_outside_the_vocabulary_is_refused_by_name(model_folder: Path) -> None:
    _, updater = make_updater(model_folder)
    with pytest.raises(ValueError, match=r"'x' \(index 0\): token id 64 is outside .* 64"):
        updater.update([make_sample("x", token_ids=(5, 6, 7, 64))], 1)


def test_cancelling_between_micro_batches_applies_nothing(model_folder: Path) -> None:
    state, updater = make_updater(model_folder, micro_batch_tokens=16)
    before = snapshot(state)
    answers = iter([False, True])
    with pytest.raises(UpdateCancelled):
        updater.update(random_samples(6), 1, lambda: next(answers))
    assert_same(before, snapshot(state))


def test_the_learning_rate_warms_up_linearly_and_stays() -> None:
    config = make_config(lr=1e-3, warmup_steps=4).learner
    found = [learning_rate(step, config) for step in (1, 2, 4, 5, 100)]
    assert found == pytest.approx([2.5e-4, 5e-4, 1e-3, 1e-3, 1e-3])
    assert learning_rate(1, make_config(lr=1e-3, warmup_steps=0).learner) == 1e-3


def test_learning_rate_zero_changes_no_weight(model_folder: Path) -> None:
    state, updater = make_updater(model_folder, lr=0.0)
    before = {n: p.detach().clone() for n, p in state.parameters.items()}
    for step in range(1, 4):
        assert updater.update(random_samples(6, seed=step), step).applied
    assert_same(before, {n: p.detach() for n, p in state.parameters.items()})


def test_figures_of_tokens_are_in_the_batch_s_order_and_absent_where_nothing_is_computed(
    model_folder: Path,
) -> None:
    samples = random_samples(6)
    samples[2] = dataclasses.replace(samples[2], advantage=0.0)
    # Small micro-batches: their order is by length, not the batch's.
    _, updater = make_updater(model_folder, micro_batch_tokens=16)
    learned = updater.update(samples, 1).learned
    temperatures = {Role.AGENT: 0.7, Role.DESIGNER: 1.3}
    start = 0
    for index, sample in enumerate(samples):
        end = start + sample.trace.num_trained_tokens
        said, weights = learned.logprobs[start:end], learned.weights[start:end]
        start = end
        if index == 2:
            assert np.isnan(said).all()
            assert np.isnan(weights).all()
            continue
        mask = sample.trace.loss_mask.astype(bool)
        direct = sampled_logprobs(model_folder, sample, temperatures[sample.role])
        expected = direct[mask[1:]] if len(direct) == len(mask) - 1 else direct[mask]
        np.testing.assert_allclose(said, expected, atol=1e-4)
        # tis_token: the ratio, truncated at 2.
        ratio = np.exp(said - sample.trace.generator_logprobs[mask])
        np.testing.assert_allclose(weights, np.minimum(ratio, 2.0), rtol=1e-4)
    assert start == len(learned.logprobs) == len(learned.weights)
