"""The value head in the learner: what it makes of a step, learns, keeps, and refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from spade_async.config.critic import CriticConfig
from spade_async.config.schema import Config
from spade_async.errors import WeightsError
from spade_async.grpo.gae import ReturnScale, generalised_advantages
from spade_async.grpo.samples import NonFiniteSample, TrainSample, pack, unpack
from spade_async.learner.checkpoint import load_checkpoint, save_checkpoint
from spade_async.learner.critic import CRITIC_TENSORS, Critic, Judged
from spade_async.learner.shares import shares
from spade_async.learner.state import LearnerState
from spade_async.learner.update import Updater
from spade_async.telemetry.metrics import find
from spade_async.transport.messages import TrainingBatch
from spade_async.types import PolicyVersion, Role
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import random_samples

torch.set_num_threads(1)
PLAIN = {"normalise_returns": False, "normalise_advantages": False, "clip_return": 0}
TEMPERATURES = {"agent": {"temperature": 1.0}, "designer": {"temperature": 1.0}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


def make(
    folder: Path, *, lr: float = 1e-2, critic: dict[str, object] | None = None, **learner: object
) -> tuple[LearnerState, Updater, Config]:
    section = {"enabled": True, "warmup_steps": 0} | (critic or {})
    values = {"lr": lr, "warmup_steps": 0, "critic": section, **learner}
    config = Config.model_validate({"learner": values, **TEMPERATURES})
    state = LearnerState.create(folder, config.learner, PolicyVersion(0, 0))
    return state, Updater(state, config), config


def worth(count: int, seed: int = 0) -> list[TrainSample]:
    """Agent samples are worth a function of their first token, designs another one."""
    return [
        replace(s, worth=float(s.trace.token_ids[0] % 2) + 3.0 * (s.role is Role.DESIGNER))
        for s in random_samples(count, seed=seed)
    ]


def head(state: LearnerState) -> Critic:
    assert state.critic is not None
    return state.critic


def test_the_first_step_has_the_return_as_advantage_of_every_token(folder: Path) -> None:
    _, updater, _ = make(folder, critic={**PLAIN, "gae_lambda": 1.0})
    samples = worth(9)
    judged = updater.judged(samples)
    assert judged is not None
    for before, after in zip(samples, judged.samples, strict=True):
        assert after.token_advantages is not None
        np.testing.assert_allclose(after.token_advantages, before.worth)
        assert len(after.token_advantages) == before.trace.num_trained_tokens


def test_advantages_are_gae_over_the_values_of_each_sample(folder: Path) -> None:
    state, updater, _ = make(folder, critic={**PLAIN, "gamma": 0.9, "gae_lambda": 0.5})
    samples = worth(9)
    assert updater.update(samples, 1).applied
    judged = updater.judged(samples)
    assert judged is not None
    start = 0
    for sample, after in zip(samples, judged.samples, strict=True):
        end = start + sample.trace.num_trained_tokens
        values = head(state).values(judged.states[start:end]).detach().double().numpy()
        assert np.abs(values).max() > 0
        expected = generalised_advantages(values, sample.worth or 0.0, 0.9, 0.5)
        np.testing.assert_allclose(after.token_advantages, expected, rtol=1e-5, atol=1e-6)
        start = end


def test_returns_and_advantages_are_normalised_per_role(folder: Path) -> None:
    _, updater, _ = make(folder)
    judged = updater.judged(worth(30))
    assert judged is not None
    for role in Role:
        mine = [s for s in judged.samples if s.role is role]
        whole = np.concatenate([s.token_advantages for s in mine])
        assert whole.mean() == pytest.approx(0.0, abs=1e-5)
        assert whole.std() == pytest.approx(1.0, abs=1e-4)
        returns = [s.worth for s in mine]
        assert judged.scales[role].mean == pytest.approx(np.mean(returns))
        assert judged.scales[role].deviation == pytest.approx(np.std(returns))


def test_neither_the_budget_nor_the_order_changes_what_is_judged(folder: Path) -> None:
    samples, found = worth(12), []
    for budget, order in ((16, range(12)), (8192, range(12)), (64, range(11, -1, -1))):
        _, updater, _ = make(folder, micro_batch_tokens=budget)
        judged = updater.judged([samples[i] for i in order])
        assert judged is not None
        found.append({s.sample_id: s.token_advantages for s in judged.samples})
    for name, first in found[0].items():
        for other in found[1:]:
            np.testing.assert_allclose(other[name], first, rtol=1e-5, atol=1e-5)


def test_the_head_learns_what_the_states_tell() -> None:
    config = CriticConfig(enabled=True, lr=0.05, passes=300, clip_value=0.0)
    critic, generator = Critic(8, config), torch.Generator().manual_seed(0)
    states = torch.randn(200, 8, generator=generator)
    targets = states @ torch.arange(8.0) + 3.0
    scales = {role: ReturnScale() for role in Role}
    told = []
    for _ in range(2):
        values = critic.values(states).detach()
        told.append(critic.learn(Judged([], states, values, targets, scales)))
    assert told[0]["critic/explained_variance"] == pytest.approx(0.0, abs=1e-6)
    assert told[1]["critic/explained_variance"] > 0.9
    assert told[1]["critic/loss"] < 0.1 * told[0]["critic/loss"]
    assert critic.num_steps == 2


def test_figures_have_names_of_the_catalog(folder: Path) -> None:
    _, updater, _ = make(folder)
    metrics = updater.update(worth(12), 1).metrics
    mine = {name for name in metrics if name.startswith("critic/")}
    assert {"critic/loss", "critic/return_mean/agent", "critic/return_deviation/designer"} <= mine
    assert all(find(name) for name in mine)


def test_advantages_are_the_groups_while_the_head_warms_up(folder: Path) -> None:
    state, updater, _ = make(folder, critic={"warmup_steps": 1})
    samples = worth(9)
    first = updater.judged(samples)
    assert first is not None
    assert first.samples == samples
    assert updater.update(samples, 1).applied
    assert head(state).is_warm
    second = updater.judged(samples)
    assert second is not None
    assert all(s.token_advantages is not None for s in second.samples)


def test_the_value_loss_does_not_move_the_body(folder: Path) -> None:
    # The same advantages by hand, without a head: the same weights.
    with_head, updater, _ = make(folder, critic={**PLAIN, "passes": 50, "lr": 1.0})
    samples = worth(9)
    judged = updater.judged(samples)
    assert judged is not None
    updater.update(samples, 1)
    alone, other, _ = make(folder, critic={"enabled": False, "warmup_steps": 5})
    other.update(judged.samples, 1)
    for name, parameter in with_head.parameters.items():
        assert torch.equal(parameter, alone.parameters[name]), name


def test_engines_are_sent_no_head(folder: Path) -> None:
    state, _, _ = make(folder)
    assert state.published_tensors().keys() == state.model.state_dict().keys()


def test_a_checkpoint_gives_head_moments_and_scales_back_to_the_last_bit(
    folder: Path, tmp_path: Path
) -> None:
    straight, updater, config = make(folder)
    for step in (1, 2):
        assert updater.update(worth(9, step), step).applied
    straight.version = PolicyVersion(0, 2)
    name = save_checkpoint(tmp_path, straight, folder)
    again = load_checkpoint(tmp_path / name, config.learner)
    assert head(again).scales == head(straight).scales
    for state, learner in ((straight, updater), (again, Updater(again, config))):
        assert learner.update(worth(9, 3), 3).applied
        assert head(state).num_steps == 3
    one, two = (head(s)._tensors() for s in (straight, again))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_a_checkpoint_without_a_head_says_which_key(folder: Path, tmp_path: Path) -> None:
    state, _, config = make(folder)
    name = save_checkpoint(tmp_path, state, folder)
    (tmp_path / name / CRITIC_TENSORS).unlink()
    with pytest.raises(WeightsError, match=r"learner\.critic\.enabled"):
        load_checkpoint(tmp_path / name, config.learner)


def test_an_update_that_is_not_applied_teaches_the_head_nothing(folder: Path) -> None:
    state, updater, _ = make(folder)
    before = head(state)._tensors()
    with torch.no_grad():
        state.model.get_output_embeddings().weight[7] = torch.inf
    result = updater.update(worth(9), 1)
    assert not result.applied
    assert not [name for name in result.metrics if name.startswith("critic/")]
    after = head(state)._tensors()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert head(state).scales[Role.AGENT] == ReturnScale()


def test_a_head_that_leaves_the_numbers_is_put_back_and_counted(folder: Path) -> None:
    state, updater, _ = make(folder)
    samples = worth(9)
    judged = updater.judged(samples)
    assert judged is not None
    before = head(state)._tensors()
    found = head(state).learn(replace(judged, targets=judged.targets * torch.nan))
    assert found["critic/nonfinite"] == 1.0
    after = head(state)._tensors()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_a_sample_that_does_not_say_its_worth_is_named(folder: Path) -> None:
    _, updater, _ = make(folder)
    samples = worth(3)
    samples[1] = replace(samples[1], worth=None)
    with pytest.raises(ValueError, match=samples[1].sample_id):
        updater.update(samples, 1)


def test_an_empty_step_is_skipped_with_a_head_too(folder: Path) -> None:
    state, updater, _ = make(folder)
    result = updater.update([], 1)
    assert result.applied
    assert result.skipped is not None
    assert head(state).num_steps == 0


def test_worth_goes_over_the_link_or_is_not_said_at_all() -> None:
    samples = worth(4)
    batch = TrainingBatch(branch=0, step=1, checkpoint=False, **pack(samples))
    assert [s.worth for s in unpack(batch)] == [s.worth for s in samples]
    samples[2] = replace(samples[2], worth=None)
    batch = TrainingBatch(branch=0, step=1, checkpoint=False, **pack(samples))
    assert [s.worth for s in unpack(batch)] == [None] * 4
    broken = TrainingBatch(branch=0, step=1, checkpoint=False, **pack(worth(4)))
    broken = replace(broken, worths=[*broken.worths[:3], float("nan")])
    with pytest.raises(NonFiniteSample, match="worth nan"):
        unpack(broken)


def test_a_replay_shows_what_the_head_made_of_it(folder: Path) -> None:
    state, updater, config = make(folder)
    found = shares(state, updater, config, worth(6))
    assert sum(s.share or 0.0 for s in found.samples) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"critic": {"gamma": 0.9}}, ["learner.critic.gamma=0.9", "learner.critic.enabled=false"]),
        ({"critic": {"enabled": True, "gae_lambda": 1.5}}, ["gae_lambda", "1"]),
        ({"critic": {"enabled": True, "lambda": 0.5}}, ["lambda"]),
        (
            {"normalise_std": True, "critic": {"enabled": True, "warmup_steps": 0}},
            ["learner.normalise_std=true", "learner.critic.warmup_steps=0"],
        ),
    ],
)
def test_what_cannot_be_meant_is_named(section: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ValidationError) as told:
        Config.model_validate({"learner": section})
    assert all(word in str(told.value) for word in words)
