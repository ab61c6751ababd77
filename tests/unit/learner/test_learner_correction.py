"""The correction rules inside the learner: same default, every rule, passes, skips, figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from spade_async.config.correction import RULES
from spade_async.config.schema import Config
from spade_async.grpo import plan
from spade_async.grpo.batch import Normaliser, build_micro_batch
from spade_async.grpo.samples import MissingLogprobs, TrainSample, unpack
from spade_async.learner.metrics import TokenFigures
from spade_async.learner.progress import UpdateCancelled
from spade_async.learner.state import LearnerState
from spade_async.learner.update import Updater
from spade_async.telemetry.metrics import find
from spade_async.types import PolicyVersion, Role
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import make_batch, make_sample, random_samples

torch.set_num_threads(1)
TEMPERATURES = {Role.AGENT: 0.7, Role.DESIGNER: 1.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


def make(folder: Path, **learner: object) -> tuple[LearnerState, Updater]:
    config = Config.model_validate(
        {
            "learner": {"lr": 1e-2, "warmup_steps": 0, **learner},
            "agent": {"temperature": 0.7},
            "designer": {"temperature": 1.3},
        }
    )
    state = LearnerState.create(folder, config.learner, PolicyVersion(0, 0))
    return state, Updater(state, config)


def rule(name: str, **values: float) -> dict[str, object]:
    passes = {"passes": RULES[name].min_passes}
    return {"correction": {"rule": name, **values}, **passes}


def gradients(state: LearnerState) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in state.parameters.values() if p.grad is not None])


def weights(state: LearnerState) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in state.parameters.values()])


def grouped(samples: list[TrainSample]) -> list[TrainSample]:
    return [dataclasses.replace(s, group=i // 4) for i, s in enumerate(samples)]


def on_policy(updater: Updater, samples: list[TrainSample]) -> list[TrainSample]:
    """The same samples with the log-probabilities that the learner itself computes."""
    found = []
    for sample in samples:
        micro = build_micro_batch([sample], TEMPERATURES)
        figures = TokenFigures()
        logprobs = updater.token_terms(micro, figures)["learner log-probability"].detach()
        reported = np.zeros(len(sample.trace.token_ids), np.float32)
        reported[sample.trace.loss_mask.astype(bool)] = logprobs.numpy()
        trace = dataclasses.replace(sample.trace, generator_logprobs=reported)
        found.append(dataclasses.replace(sample, trace=trace))
    return found


def test_the_default_rule_gives_the_loss_and_gradient_of_before_to_the_last_bit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The objective as it was written before the rules were: one truncated weight per token.
    # Where the split is the same, and through the head go the trained tokens alone: other ones
    # group the float32 sums in another way.
    samples = random_samples(16)
    monkeypatch.setattr(plan, "PASS_TOKENS", 1_000_000)
    state, updater = make(folder, micro_batch_tokens=1_000_000)
    loss = updater.accumulate(samples, TokenFigures())
    found = gradients(state)

    state.optimizer.zero_grad(set_to_none=True)
    order = sorted(range(16), key=lambda i: (np.flatnonzero(samples[i].trace.loss_mask)[-1], i))
    micro = build_micro_batch([samples[i] for i in order], TEMPERATURES)
    body, head = state.model.base_model, state.model.get_output_embeddings()
    states = body(micro.token_ids_RL, attention_mask=micro.attention_mask_RL).last_hidden_state
    chosen = head(states[micro.rows, micro.columns]).float() / micro.temperatures[:, None]
    logprobs = torch.log_softmax(chosen, -1).gather(1, micro.targets[:, None]).squeeze(1)
    log_ratio = (logprobs.detach() - micro.generator_logprobs).clamp(-20.0, 20.0)
    ratio = (logprobs - logprobs.detach()).exp()
    advantages = micro.advantages
    token_losses = -log_ratio.exp().clamp(max=2.0) * torch.minimum(
        ratio * advantages, ratio.clamp(0.8, 1.2) * advantages
    )
    scale = Normaliser.of(samples).token_scale(1.0)
    before = (token_losses * scale[micro.roles]).sum()
    before.backward()
    assert loss == float(before.detach())
    assert torch.equal(found, gradients(state))


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_trains_and_reports_only_documented_figures(folder: Path, name: str) -> None:
    state, updater = make(folder, **rule(name))
    samples = [
        dataclasses.replace(s, staleness=i % 6)
        for i, s in enumerate(grouped(random_samples(16, seed=3)))
    ]
    before = weights(state)
    result = updater.update(samples, 1)
    assert result.reason is None
    assert torch.isfinite(weights(state)).all()
    assert torch.equal(before, weights(state)) == (result.skipped is not None)
    wanted = {"weight_mean_raw", "weight_mean", "truncated_mass", "clip_share"}
    wanted |= {"masked_share_positive", "masked_share_negative", "kl_age/0", "kl_age/5-8"}
    if result.skipped is None:
        wanted |= {"ess", "stale_gradient_share"}
    assert {f"learner/{tag}" for tag in wanted} <= result.metrics.keys()
    assert all(find(tag) is not None for tag in result.metrics)
    for tag in ("ess", "truncated_mass", "clip_share", "stale_gradient_share"):
        assert 0.0 <= result.metrics.get(f"learner/{tag}", 0.0) <= 1.0 + 1e-9


@pytest.mark.parametrize("name", sorted(RULES.keys() - {"gepo"}))
def test_unchanged_weights_make_every_rule_a_plain_policy_gradient(folder: Path, name: str) -> None:
    # Temperature (0.7 and 1.3) is counted once on each side: else the ratios would not be 1.
    _, plain = make(folder)
    samples = on_policy(plain, random_samples(12))
    state, updater = make(folder, **rule("none"))
    updater.accumulate(samples, TokenFigures())
    expected = gradients(state)
    state, updater = make(folder, **rule(name))
    updater.accumulate(samples, TokenFigures())
    torch.testing.assert_close(gradients(state), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["gepo", "tis_sequence", "gspo", "mis_geometric"])
def test_micro_batches_do_not_change_a_rule_of_whole_sequences(folder: Path, name: str) -> None:
    samples = grouped(random_samples(16))
    found = []
    for cap in (16, 1_000_000):
        state, updater = make(folder, micro_batch_tokens=cap, **rule(name))
        updater.accumulate(samples, TokenFigures())
        found.append(gradients(state))
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)


def test_gepo_knows_the_group_of_a_sample(folder: Path) -> None:
    samples = random_samples(8)
    found = []
    for chosen in (grouped(samples), samples):
        state, updater = make(folder, **rule("gepo"))
        updater.accumulate(chosen, TokenFigures())
        found.append(gradients(state))
    assert float((found[0] - found[1]).abs().max()) > 1e-4


def test_groups_survive_the_wire_and_may_be_absent() -> None:
    samples = grouped(random_samples(6))
    assert [s.group for s in unpack(make_batch(samples, 1))] == [0, 0, 0, 0, 1, 1]
    batch = dataclasses.replace(make_batch(samples, 1), groups=[])
    assert [s.group for s in unpack(batch)] == [None] * 6
    with pytest.raises(ValueError, match="groups has length 2 for 6 samples"):
        unpack(dataclasses.replace(make_batch(samples, 1), groups=[0, 1]))


def test_a_second_pass_is_anchored_on_the_start_of_the_update(folder: Path) -> None:
    samples = random_samples(10)
    state, updater = make(folder, **rule("decoupled_ppo"))
    assert updater.update(samples, 1).applied

    by_hand, steps = make(folder, **rule("decoupled_ppo"))
    steps.accumulate(samples, TokenFigures())
    for is_first in (True, False):
        if not is_first:
            steps.accumulate(samples, TokenFigures(), is_first_pass=False)
        torch.nn.utils.clip_grad_norm_(list(by_hand.parameters.values()), 1.0)
        by_hand.optimizer.step()
    torch.testing.assert_close(weights(state), weights(by_hand))

    fresh, once = make(folder, **rule("decoupled_ppo"))
    for _ in range(2):  # Two updates, each anchored anew: not the same.
        once.accumulate(samples, TokenFigures())
        torch.nn.utils.clip_grad_norm_(list(fresh.parameters.values()), 1.0)
        fresh.optimizer.step()
    assert float((weights(fresh) - weights(state)).abs().max()) > 1e-5


def break_second_step(state: LearnerState) -> Callable[[], None]:
    real_step, calls = state.optimizer.step, iter(range(9))

    def step() -> None:
        real_step()
        if next(calls) == 1:
            with torch.no_grad():
                next(iter(state.parameters.values()))[0, 0] = float("inf")

    return step


def test_a_second_pass_that_fails_or_is_cancelled_undoes_the_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, updater = make(folder, **rule("decoupled_ppo"))
    before = weights(state)
    monkeypatch.setattr(state.optimizer, "step", break_second_step(state))
    result = updater.update(random_samples(6), 1)
    assert not result.applied
    assert "is not finite after the step" in str(result.reason)
    assert torch.equal(before, weights(state))
    assert all(not moments for moments in state.optimizer.state.values())

    state, updater = make(folder, micro_batch_tokens=1_000_000, **rule("decoupled_ppo"))
    answers = iter([False, True])
    with pytest.raises(UpdateCancelled):
        updater.update(random_samples(6), 1, lambda: next(answers))
    assert torch.equal(before, weights(state))


def test_a_batch_that_the_rule_masks_whole_is_skipped_by_name(folder: Path) -> None:
    state, updater = make(folder, **rule("icepop", low=0.99, high=1.01))
    assert updater.update(on_policy(updater, random_samples(6)), 1).skipped is None
    before = weights(state)
    far = [make_sample("far", logprobs=(0, 0, -19, -19)), make_sample("b", logprobs=(0, 0, -9, 0))]
    result = updater.update(far, 2)
    assert result.applied
    assert result.reason is None
    assert "icepop" in str(result.skipped)
    assert result.metrics["learner/skipped"] == 1.0
    assert result.metrics["learner/masked_share_positive"] == 1.0
    assert torch.equal(before, weights(state)), "momentum alone must not move the weights"


def test_a_batch_whose_samples_were_all_cut_is_skipped_by_name(folder: Path) -> None:
    state, updater = make(folder)
    before = weights(state)
    result = updater.update([], 1)
    assert "all were cut" in str(result.skipped)
    assert torch.equal(before, weights(state))


def without_logprobs(sample: TrainSample) -> TrainSample:
    missing = np.full(len(sample.trace.token_ids), np.nan, np.float32)
    return dataclasses.replace(
        sample, trace=dataclasses.replace(sample.trace, generator_logprobs=missing)
    )


def test_logprobs_that_the_engine_did_not_give_are_named_unless_nothing_needs_them(
    folder: Path,
) -> None:
    samples = random_samples(6)
    arrays = make_batch(samples, 1)
    batch = dataclasses.replace(
        arrays, generator_logprobs=np.full_like(arrays.generator_logprobs, np.nan)
    )
    with pytest.raises(MissingLogprobs, match=r'the engine gave none.*correction.rule="none"'):
        unpack(batch)
    _, updater = make(folder, **rule("none"))
    result = updater.update(unpack(batch, needs_logprobs=False), 1)
    assert result.applied
    assert np.isfinite(result.metrics["learner/loss"])
    assert "learner/ratio_mean" not in result.metrics
    assert not any(tag.startswith("learner/kl_age") for tag in result.metrics)


def test_the_entropy_term_raises_the_entropy(folder: Path) -> None:
    samples = [make_sample("a", advantage=0.0), make_sample("b", advantage=0.0)]
    _, updater = make(folder, entropy_weight=1.0, lr=1e-3)
    first = updater.update(samples, 1).metrics["learner/entropy_agent"]
    for step in range(2, 6):
        last = updater.update(samples, step).metrics["learner/entropy_agent"]
    assert last > first + 1e-3
