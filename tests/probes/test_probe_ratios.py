"""Probes of ratios, log-probabilities and NaN. Rows 26-34 of docs/probes.md."""

from __future__ import annotations

import dataclasses
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spade_async.config.schema import Config, EngineConfig
from spade_async.engine.builtin import BuiltinEngine
from spade_async.engine.protocol import Sampling
from spade_async.errors import ProcessFailure
from spade_async.grpo.correction import ratio_stats
from spade_async.grpo.samples import TrainSample
from spade_async.learner.state import LearnerState
from spade_async.learner.update import Updater
from spade_async.transport import messages as m
from spade_async.types import PolicyVersion, Role
from tests.support.asynchronous import run_async
from tests.support.probe_world import FaultyGenerator, ProbeRun
from tests.support.scripted_run import arrays
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import make_sample

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


def make_updater(folder: Path, temperature: float = 1.0, **learner: Any) -> tuple[Any, Updater]:
    config = Config.model_validate(
        {
            "learner": {"warmup_steps": 0, **learner},
            "agent": {"temperature": temperature},
            "designer": {"temperature": temperature},
        }
    )
    state = LearnerState.create(folder, config.learner, PolicyVersion(0, 0))
    return state, Updater(state, config, None)


async def generated(folder: Path, temperature: float, count: int = 12) -> list[TrainSample]:
    """Samples as the real engine made them, mixed roles and advantages."""
    engine = await BuiltinEngine.create(folder, EngineConfig(slots=4), 128)
    try:
        samples = []
        for index in range(count):
            prompt = [5 + (index + j) % 50 for j in range(4 + index)]
            asked = Sampling(temperature, 20, stop_token_ids=(), seed=index)
            made = await engine.generate(prompt, asked)
            size = len(prompt)
            samples.append(
                make_sample(
                    f"s{index}",
                    role=Role.DESIGNER if index % 3 == 0 else Role.AGENT,
                    advantage=1.0 if index % 2 else -1.0,
                    token_ids=[*prompt, *made.token_ids.tolist()],
                    loss_mask=[0] * size + [1] * len(made.token_ids),
                    logprobs=[0.0] * size + made.logprobs.tolist(),
                )
            )
        return samples
    finally:
        await engine.close()


# Rows 28 and 31: two computations of one log-probability --------------------------------------


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
@run_async
async def test_engine_and_learner_agree_on_unchanged_weights_at_any_temperature(
    folder: Path, temperature: float
) -> None:
    samples = await generated(folder, temperature)
    _, updater = make_updater(folder, temperature, lr=0.0)
    metrics = updater.update(samples, 1).metrics
    # The largest over all tokens; the public figure is 0.02 in the mean.
    assert abs(np.log(metrics["learner/ratio_max"])) < 1e-4
    assert metrics["learner/ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["learner/clip_share"] == 0.0


@run_async
async def test_the_gap_stays_flat_over_50_steps_at_learning_rate_zero(folder: Path) -> None:
    samples = await generated(folder, 1.0)
    _, updater = make_updater(folder, lr=0.0)
    gaps = [updater.update(samples, step).metrics["learner/ratio_max"] for step in range(1, 51)]
    assert set(gaps) == {gaps[0]}
    assert gaps[0] == pytest.approx(1.0, abs=1e-4)


# Row 29: long sequences ------------------------------------------------------------------------


def test_noise_of_rounding_over_10000_tokens_does_not_scale_a_healthy_batch_down() -> None:
    """A product over the sequence would have weight exp(+-0.1) and worse; tokens keep theirs."""
    noise = np.random.default_rng(0).normal(0.0, 1e-3, 10_000).astype(np.float32)
    stats = ratio_stats(noise, 2.0)
    assert stats is not None
    assert stats.ess == pytest.approx(1.0, abs=1e-5)
    assert stats.ratio_mean == pytest.approx(1.0, abs=1e-4)


# Row 30: old data ------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 3, 8, 16])
def test_a_bandit_improves_on_data_that_is_many_versions_old(folder: Path, delay: int) -> None:
    """A quarter of the tokens is right; every batch was sampled `delay` updates before."""
    state, updater = make_updater(folder, lr=2e-3, betas=(0.9, 0.95))
    generator = torch.Generator().manual_seed(delay)
    prompt, right = [5, 6, 7], 4
    late: deque[list[TrainSample]] = deque()

    def probabilities() -> torch.Tensor:
        with torch.no_grad():
            return torch.softmax(state.model(input_ids=torch.tensor([prompt])).logits[0, -1], -1)

    def share_right() -> float:
        return float(probabilities()[3::right].sum())

    before = share_right()
    for step in range(1, 61):
        policy = probabilities()
        actions = torch.multinomial(policy, 64, replacement=True, generator=generator).tolist()
        returns = [float(action % right == 3) for action in actions]
        mean = sum(returns) / len(returns)
        late.append(
            [
                make_sample(
                    f"{step}.{i}",
                    advantage=value - mean,
                    staleness=delay,
                    token_ids=[*prompt, action],
                    loss_mask=[0, 0, 0, 1],
                    logprobs=[0.0, 0.0, 0.0, float(policy[action].log())],
                )
                for i, (action, value) in enumerate(zip(actions, returns, strict=True))
            ]
        )
        if len(late) > delay:
            assert updater.update(late.popleft(), step).applied
    assert before < 0.6
    assert share_right() > 0.9


# Row 32: batches with nothing in them ----------------------------------------------------------


def no_tokens(answer: m.Message) -> list[m.Message]:
    """Every episode ends before the agent's first token."""
    if isinstance(answer, m.EpisodeResult) and answer.purpose == "train":
        return [dataclasses.replace(answer, **arrays(0, tokens=0))]
    return [answer]


def test_groups_without_a_sampled_token_leave_the_run_to_train_designs(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run")
    run.go(FaultyGenerator(no_tokens, missing=0.0))
    assert len(run.batches) == 6
    assert {role for batch in run.batches for role in batch.roles} == {"designer"}
    run.check()


def test_a_run_in_which_nobody_samples_a_token_ends_with_the_reason(tmp_path: Path) -> None:
    def nothing(answer: m.Message) -> list[m.Message]:
        if isinstance(answer, m.DesignResult | m.EpisodeResult):
            return [dataclasses.replace(answer, **arrays(0, tokens=0))]
        return [answer]

    run = ProbeRun(tmp_path / "run")
    with pytest.raises(
        ProcessFailure, match=r"20 batches in a row could be trained; .* 44 x no sampled token"
    ):
        run.go(FaultyGenerator(nothing, missing=0.0))
    assert run.batches == []


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_returns_make_batches_of_zero_advantages_that_are_trained_as_such(
    tmp_path: Path, value: float
) -> None:
    def same(answer: m.Message) -> list[m.Message]:
        if isinstance(answer, m.EpisodeResult):
            return [dataclasses.replace(answer, episode_return=value)]
        return [answer]

    run = ProbeRun(tmp_path / "run", learner={"normalise_std": True})
    run.go(FaultyGenerator(same, validity=1.0, missing=0.0))
    assert len(run.batches) == 6
    agents = [
        advantage
        for batch in run.batches
        for role, advantage in zip(batch.roles, batch.advantages.tolist(), strict=True)
        if role == "agent"
    ]
    assert agents
    assert set(agents) == {0.0}


def test_a_group_of_which_one_member_is_left_is_not_trained(tmp_path: Path) -> None:
    def alone(answer: m.Message) -> list[m.Message]:
        is_train = isinstance(answer, m.EpisodeResult) and answer.purpose == "train"
        if is_train and answer.index > 0:  # type: ignore[union-attr]
            reason = "ours: SandboxError: gone"
            return [dataclasses.replace(answer, episode_return=None, missing_reason=reason)]
        return [answer]

    run = ProbeRun(tmp_path / "run")
    run.go(FaultyGenerator(alone, missing=0.0))
    assert {role for batch in run.batches for role in batch.roles} == {"designer"}
    unused = run.query("SELECT DISTINCT unused_reason FROM samples WHERE unused_reason IS NOT NULL"
                       " AND role = 'agent' AND missing_reason IS NULL")  # fmt: skip
    assert unused == [("no baseline: fewer than two episodes of its group",)]
    run.check()


# Rows 33 and 34: failures are not numbers ------------------------------------------------------


@pytest.mark.parametrize("normalise_std", [False, True])
def test_a_failed_sample_is_in_no_mean_no_deviation_and_no_batch(
    tmp_path: Path, normalise_std: bool
) -> None:
    failed: set[str] = set()

    def fails(answer: m.Message) -> list[m.Message]:
        is_train = isinstance(answer, m.EpisodeResult) and answer.purpose == "train"
        if is_train and answer.index == 2:  # type: ignore[union-attr]
            failed.add(f"{answer.task_id}.2")  # type: ignore[union-attr]
            # A failed rollout that still carries tokens, as one that died in its second turn.
            return [dataclasses.replace(answer, episode_return=None, missing_reason="ours: gone")]
        return [answer]

    run = ProbeRun(tmp_path / "run", learner={"normalise_std": normalise_std})
    run.go(FaultyGenerator(fails, missing=0.0))
    run.check()
    returns = dict(
        run.query(
            "SELECT sample_id, episode_return FROM samples WHERE role = 'agent'"
            " AND episode_return IS NOT NULL"
        )
    )
    groups: dict[str, dict[str, float]] = {}
    for batch in run.batches:
        for sample_id, advantage in zip(batch.sample_ids, batch.advantages.tolist(), strict=True):
            if sample_id in returns:
                groups.setdefault(sample_id.rpartition(".")[0], {})[sample_id] = advantage
    assert len(groups) > 20
    trained = {s for batch in run.batches for s in batch.sample_ids}
    assert failed
    assert not trained & failed
    for members in groups.values():
        assert len(members) == 3
        values = np.array([returns[s] for s in members])
        wanted = values - values.mean()
        if normalise_std:
            wanted = wanted / values.std() if values.std() > 0 else wanted * 0.0
        np.testing.assert_allclose(list(members.values()), wanted, atol=1e-6)
    tokens = run.query("SELECT SUM(num_trained_tokens) FROM samples WHERE trained_ordinal IS NULL"
                       " AND missing_reason IS NOT NULL AND purpose = 'train'")  # fmt: skip
    assert tokens[0][0] is not None
    assert sum(int(b.loss_mask.sum()) for b in run.batches) == 3 * len(trained)
