"""NaN in every place of an update: never applied, set aside, replayed, and the culprit named."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from spade_async.cli import app
from spade_async.config.load import dump_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.errors import RunFolderError
from spade_async.learner.diagnose import Culprit
from spade_async.learner.learner import Learner
from spade_async.learner.quarantine import state_folder
from spade_async.learner.replay import Replay, find_batch, replay
from spade_async.learner.resume_point import ResumePoint
from spade_async.ledger import Ledger, SampleRow
from spade_async.transport.messages import TrainingBatch
from spade_async.types import Role
from spade_async.weights.store import FileWeightStore
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import make_batch, make_sample, random_samples

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


class Run:
    """A learner in a run folder."""

    def __init__(self, root: Path, model_folder: Path, **sections: dict[str, object]) -> None:
        learner = {"lr": 1e-2, "warmup_steps": 0, **sections.pop("learner", {})}
        self.config = Config.model_validate({"learner": learner, **sections})
        self.root, self.model = root, model_folder
        root.mkdir(exist_ok=True)
        dump_resolved(self.config, root)
        RunFolder(root).info.write_text(json.dumps({"model_folder": str(model_folder)}))
        resume = {
            "branch": 0, "step": 0, "checkpoint": None, "model_folder": str(model_folder)
        }  # fmt: skip
        store = FileWeightStore(root / "weights", keep=5)
        self.learner = Learner(self.config, root, ResumePoint.of(resume), store)

    def weights(self) -> dict[str, torch.Tensor]:
        state = self.learner.state
        found = {n: p.detach().clone() for n, p in state.parameters.items()}
        for name, parameter in state.parameters.items():
            for key, value in state.optimizer.state.get(parameter, {}).items():
                found[f"{key}.{name}"] = value.clone()
        return found

    def refused(self, batch: TrainingBatch) -> str:
        """Train on it; nothing must change. Returns the recorded reason."""
        before = self.weights()
        report = self.learner.train(batch)
        assert not report.applied
        after = self.weights()
        assert before.keys() == after.keys()
        for name, value in before.items():
            assert torch.equal(value, after[name]), name
        facts = json.loads((self.root / "quarantine" / f"batch-0-{batch.step}.json").read_text())
        return str(facts["reason"])

    def replay(self, step: int) -> Replay:
        return replay(self.root, str(step), self.model)


def batch(step: int) -> TrainingBatch:
    return make_batch(random_samples(8, seed=step), step)


def poisoned_logprob(step: int) -> tuple[TrainingBatch, Culprit]:
    good = batch(step)
    logprobs = good.generator_logprobs.copy()
    start = int(good.offsets[3])
    token = int(np.flatnonzero(good.loss_mask[start:])[0])
    logprobs[start + token] = np.nan
    culprit = Culprit(
        "generator log-probability", float("nan"), good.sample_ids[3], good.roles[3], token,
        int(good.token_ids[start + token]),
    )  # fmt: skip
    return dataclasses.replace(good, generator_logprobs=logprobs), culprit


def poisoned_advantage(step: int) -> tuple[TrainingBatch, Culprit]:
    good = batch(step)
    advantages = good.advantages.copy()
    advantages[5] = np.inf
    culprit = Culprit("advantage", float("inf"), good.sample_ids[5], good.roles[5])
    return dataclasses.replace(good, advantages=advantages), culprit


def huge_loss(step: int) -> tuple[TrainingBatch, Culprit]:
    # Advantage times weight (2, the cap) is above the largest float.
    huge = make_sample("huge", advantage=3e38, token_ids=(5, 6, 7, 8), logprobs=(0, 0, 0, -99))
    samples = [*random_samples(4, seed=step), huge]
    return make_batch(samples, step), Culprit("token loss", float("-inf"), "huge", "agent", 3, 8)


def same(found: Culprit, expected: Culprit) -> bool:
    both = np.array([found.value, expected.value])
    return found == dataclasses.replace(expected, value=found.value) and bool(
        np.array_equal(both[:1], both[1:], equal_nan=True)
    )


@pytest.mark.parametrize("make_bad", [poisoned_logprob, poisoned_advantage, huge_loss])
def test_the_culprit_is_named_by_sample_role_token_and_quantity(
    tmp_path: Path,
    model_folder: Path,
    make_bad: Callable[[int], tuple[TrainingBatch, Culprit]],
) -> None:
    run = Run(tmp_path, model_folder)
    assert run.learner.train(batch(1)).applied
    bad, expected = make_bad(2)
    reason = run.refused(bad)
    assert run.learner.train(batch(3)).applied

    found = run.replay(2)
    assert (found.reason_then, found.weights_before) == (reason, "0.1")
    assert found.is_reproduced
    (culprit,) = found.diagnosis.culprits
    assert same(culprit, expected), culprit


def test_a_gradient_norm_that_overflows_under_a_finite_loss_is_named(
    tmp_path: Path, model_folder: Path
) -> None:
    # Each gradient is finite, their squares are not.
    run = Run(tmp_path, model_folder)
    huge = make_sample("huge", advantage=3e38, token_ids=(5, 6, 7, 8), logprobs=(0, 0, 0, 0))
    assert run.refused(make_batch([*random_samples(3), huge], 1)) == "gradient norm is inf"
    expected = Culprit("gradient norm", float("inf"), "huge", "agent", 2, 7)
    assert run.replay(1).diagnosis.culprits == (expected,)


def test_a_gradient_that_overflows_under_a_finite_loss_is_named(
    tmp_path: Path, model_folder: Path
) -> None:
    # A row of the embedding so large that the slopes of the logits are no numbers.
    run = Run(tmp_path, model_folder)
    with torch.no_grad():
        run.learner.state.model.get_input_embeddings().weight[9] = 1e30
    reason = run.refused(make_batch([make_sample("odd", token_ids=(5, 6, 9, 7))], 1))
    assert reason.startswith("gradient of model.")
    (culprit,) = run.replay(1).diagnosis.culprits
    assert culprit.quantity == reason.removesuffix(" is not finite")
    assert not np.isfinite(culprit.value)
    # The token that is predicted from the large row.
    assert (culprit.sample_id, culprit.token_index, culprit.token_id) == ("odd", 3, 7)


def test_a_log_probability_of_the_learner_that_is_nan_is_named_for_each_sample(
    tmp_path: Path, model_folder: Path
) -> None:
    # A temperature so small that the logits overflow, for one role only.
    run = Run(tmp_path, model_folder, designer={"temperature": 1e-39})
    bad = batch(1)
    assert "loss is nan" in run.refused(bad)
    culprits = run.replay(1).diagnosis.culprits
    designers = [i for i, r in zip(bad.sample_ids, bad.roles, strict=True) if r == Role.DESIGNER]
    assert [c.sample_id for c in culprits] == designers
    assert {c.quantity for c in culprits} == {"learner log-probability"}
    for culprit in culprits:
        index = bad.sample_ids.index(str(culprit.sample_id))
        mask = bad.loss_mask[bad.offsets[index] : bad.offsets[index + 1]]
        assert culprit.token_index == int(np.flatnonzero(mask)[0])


def spoil_gradient(run: Run, name: str) -> None:
    hooks = []

    def once(gradient: torch.Tensor) -> torch.Tensor:
        hooks.pop().remove()
        return gradient * float("nan")

    hooks.append(run.learner.state.parameters[name].register_hook(once))


@pytest.mark.parametrize("layer", range(3))
def test_each_gradient_is_checked_and_named(tmp_path: Path, model_folder: Path, layer: int) -> None:
    run = Run(tmp_path, model_folder)
    run.learner.train(batch(1))
    names = list(run.learner.state.parameters)
    name = [names[0], names[len(names) // 2], names[-1]][layer]
    spoil_gradient(run, name)
    assert run.refused(batch(2)) == f"gradient of {name} is not finite"
    # A fault of the machine and not of the batch: the same batch is finite when it is replayed.
    found = run.replay(2)
    assert not found.is_reproduced
    assert found.diagnosis.culprits == ()
    assert found.diagnosis.grad_norm is not None


@pytest.mark.parametrize("what", ["weight", "exp_avg_sq"])
def test_a_weight_or_moment_that_is_not_finite_after_the_step_is_rolled_back(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    run = Run(tmp_path, model_folder)
    run.learner.train(batch(1))
    state = run.learner.state
    name, parameter = next(iter(state.parameters.items()))
    real = state.optimizer.step

    def broken() -> None:
        real()
        target = parameter.data if what == "weight" else state.optimizer.state[parameter][what]
        target.view(-1)[7] = float("inf")

    with monkeypatch.context() as patch:
        patch.setattr(state.optimizer, "step", broken)
        reason = run.refused(batch(2))
    separator = " " if what == "weight" else " of "
    assert reason == f"{what}{separator}{name} is not finite after the step"
    assert run.learner.train(batch(3)).applied


def test_replay_meets_the_state_that_the_batch_met(tmp_path: Path, model_folder: Path) -> None:
    # Applied by hand: what the replay computes is what the run would have computed.
    run = Run(tmp_path, model_folder)
    for step in (1, 2):
        run.learner.train(batch(step))
    name = next(iter(run.learner.state.parameters))
    spoil_gradient(run, name)
    run.refused(batch(3))
    reference = Run(tmp_path / "again", model_folder)
    for step in (1, 2):
        reference.learner.train(batch(step))
    expected = reference.learner.train(batch(3)).metrics
    found = run.replay(3).diagnosis
    assert (found.loss, found.grad_norm) == (
        expected["learner/loss"], expected["learner/grad_norm"],
    )  # fmt: skip


def test_the_state_is_linked_to_the_checkpoint_and_outlives_it(
    tmp_path: Path, model_folder: Path
) -> None:
    run = Run(tmp_path, model_folder, checkpoint={"keep": 2})
    run.learner.train(dataclasses.replace(batch(1), checkpoint=True))
    run.refused(poisoned_logprob(2)[0])
    run.refused(poisoned_logprob(3)[0])
    checkpoint = tmp_path / "checkpoints" / "branch-0-step-1" / "model.safetensors"
    states = [state_folder(tmp_path / "quarantine" / f"batch-0-{i}.npz") for i in (2, 3)]
    files = [checkpoint, *(state / "model.safetensors" for state in states)]
    assert len({path.stat().st_ino for path in files}) == 1
    for step in (4, 5):
        run.learner.train(dataclasses.replace(batch(step), checkpoint=True))
    assert not checkpoint.exists()
    assert run.replay(3).is_reproduced


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([], id="empty"),
        pytest.param([make_sample("a", advantage=0.0)], id="zero advantage"),
        pytest.param([make_sample("a")], id="group of one"),
        pytest.param(
            [make_sample("a", token_ids=(4, 5), loss_mask=(0, 1))], id="one trained token"
        ),
    ],
)
def test_thin_batches_are_finite(tmp_path: Path, model_folder: Path, samples: list) -> None:
    run = Run(tmp_path, model_folder)
    result = run.learner._updater.update(samples, 1)
    assert result.applied
    assert all(np.isfinite(value) for value in result.metrics.values())
    assert all(torch.isfinite(p).all() for p in run.learner.state.parameters.values())


def test_a_batch_that_trains_no_token_is_refused_before_the_update(
    tmp_path: Path, model_folder: Path
) -> None:
    run = Run(tmp_path, model_folder)
    good = batch(1)
    masked = dataclasses.replace(good, loss_mask=np.zeros_like(good.loss_mask))
    with pytest.raises(ValueError, match="loss_mask is all 0"):
        run.learner.train(masked)


def test_extreme_log_ratios_are_clamped_before_they_overflow(
    tmp_path: Path, model_folder: Path
) -> None:
    run = Run(tmp_path, model_folder, learner={"kl_to_start": 0.5})
    samples = [
        make_sample("low", advantage=-1.0, logprobs=(0, 0, -3e38, -200)),
        make_sample("high", advantage=1.0, logprobs=(0, 0, 3e38, 200)),
    ]
    report = run.learner.train(make_batch(samples, 1))
    assert report.applied
    assert np.isfinite(report.metrics["learner/loss"])


def test_the_command_names_the_environment_from_the_ledger(
    tmp_path: Path, model_folder: Path
) -> None:
    run = Run(tmp_path, model_folder)
    bad, culprit = poisoned_logprob(1)
    run.refused(bad)
    sample_id = str(culprit.sample_id)
    ledger = Ledger.open(RunFolder(tmp_path).ledger, create=True, config_digest="x")
    with ledger.transaction():
        ledger.add_sample(
            SampleRow(
                sample_id=sample_id, group_id="g", role=str(culprit.role), purpose="train",
                environment_id="e-77", created_unix_s=1.0,
            ),
            None,
        )  # fmt: skip
    ledger.close()
    printed = CliRunner().invoke(app, ["replay", str(tmp_path), "batch-0-1"])
    assert printed.exit_code == 0, printed.output
    expected = (
        f"  sample {sample_id}, {culprit.role}, environment e-77, token {culprit.token_index} "
        f"(id {culprit.token_id}): generator log-probability is nan"
    )
    assert expected in printed.output.splitlines()
    as_json = CliRunner().invoke(app, ["replay", str(tmp_path), "1", "--json"])
    (found,) = json.loads(as_json.output)["culprits"]
    assert (found["environment_id"], found["value"]) == ("e-77", "nan")


def test_a_name_that_does_not_exist_says_which_do(tmp_path: Path, model_folder: Path) -> None:
    run = Run(tmp_path, model_folder)
    with pytest.raises(RunFolderError, match="none was set aside"):
        find_batch(tmp_path, "batch-0-9")
    run.refused(poisoned_logprob(1)[0])
    with pytest.raises(RunFolderError, match="no batch '7': there is batch-0-1"):
        find_batch(tmp_path, "7")
    for name in ("1", "batch-0-1", "batch-0-1.npz", "quarantine/batch-0-1.json"):
        assert find_batch(tmp_path, name).name == "batch-0-1.npz"
