from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from spade_async.config.schema import Config
from spade_async.errors import WeightsError
from spade_async.learner.checkpoint import load_checkpoint, save_checkpoint
from spade_async.learner.checkpoint_folder import (
    STATE_FACTS,
    Retention,
    checkpoint_name,
    checkpoint_version,
    sweep,
)
from spade_async.learner.moments import STATE_TENSORS
from spade_async.learner.state import LearnerState
from spade_async.learner.update import Updater
from spade_async.types import PolicyVersion
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import random_samples

torch.set_num_threads(1)

CONFIG = Config.model_validate({"learner": {"lr": 1e-2, "weight_decay": 0.1}})


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


def train(state: LearnerState, steps: range) -> None:
    updater = Updater(state, CONFIG)
    for step in steps:
        assert updater.update(random_samples(8, seed=step), step).applied
        state.version = PolicyVersion(0, step)


def everything(state: LearnerState) -> dict[str, torch.Tensor]:
    found = {n: t.clone() for n, t in state.model.state_dict().items()}
    for name, parameter in state.parameters.items():
        for key, value in state.optimizer.state[parameter].items():
            found[f"{key}.{name}"] = value.clone()
    return found


def test_four_steps_equal_two_a_restart_and_two_to_the_last_bit(
    model_folder: Path, tmp_path: Path
) -> None:
    straight = LearnerState.create(model_folder, CONFIG.learner, PolicyVersion(0, 0))
    train(straight, range(1, 5))

    first = LearnerState.create(model_folder, CONFIG.learner, PolicyVersion(0, 0))
    train(first, range(1, 3))
    torch.manual_seed(99)
    torch.rand(3)
    name = save_checkpoint(tmp_path, first, model_folder)
    expected_random = torch.rand(4)

    second = load_checkpoint(tmp_path / name, CONFIG.learner)
    assert torch.equal(torch.rand(4), expected_random)
    assert second.version == PolicyVersion(0, 2)
    train(second, range(3, 5))
    resumed, reference = everything(second), everything(straight)
    assert resumed.keys() == reference.keys()
    for key, value in reference.items():
        assert torch.equal(value, resumed[key]), key


def test_a_checkpoint_before_any_step_loads(model_folder: Path, tmp_path: Path) -> None:
    state = LearnerState.create(model_folder, CONFIG.learner, PolicyVersion(0, 0))
    name = save_checkpoint(tmp_path, state, model_folder)
    assert load_checkpoint(tmp_path / name, CONFIG.learner).version == PolicyVersion(0, 0)


def test_a_checkpoint_is_an_ordinary_model_folder(model_folder: Path, tmp_path: Path) -> None:
    state = LearnerState.create(model_folder, CONFIG.learner, PolicyVersion(0, 0))
    train(state, range(1, 2))
    folder = tmp_path / save_checkpoint(tmp_path, state, model_folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    for name, value in state.model.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer("1+2=?")["input_ids"]).replace(" ", "") == "1+2=?"
    original = (model_folder / "tokenizer_hash.txt").read_text()
    assert (folder / "tokenizer_hash.txt").read_text() == original
    suffixes = {".json", ".safetensors", ".tensors", ".txt", ".jinja"}
    assert {p.suffix for p in folder.iterdir()} <= suffixes


def test_nothing_but_the_checkpoint_is_left_behind(model_folder: Path, tmp_path: Path) -> None:
    state = LearnerState.create(model_folder, CONFIG.learner, PolicyVersion(2, 7))
    for _ in range(2):  # again under the same name: replaced
        assert save_checkpoint(tmp_path, state, model_folder) == "branch-2-step-7"
    assert [p.name for p in tmp_path.iterdir()] == ["branch-2-step-7"]


def test_a_save_that_fails_leaves_no_checkpoint_of_that_name(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    state = LearnerState.create(model_folder, CONFIG.learner, PolicyVersion(0, 1))
    monkeypatch.setattr("spade_async.learner.moments.save_file", full_disk)
    with pytest.raises(WeightsError, match=r"writing checkpoint branch-0-step-1 .* No space left"):
        save_checkpoint(tmp_path, state, model_folder)
    assert not (tmp_path / "branch-0-step-1").exists()
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="branch-0-step-3 does not exist"):
        load_checkpoint(tmp_path / "branch-0-step-3", CONFIG.learner)


@pytest.mark.parametrize("file", ["model.safetensors", STATE_TENSORS, STATE_FACTS])
def test_a_damaged_checkpoint_is_refused_in_one_line(
    model_folder: Path, tmp_path: Path, file: str
) -> None:
    state = LearnerState.create(model_folder, CONFIG.learner, PolicyVersion(0, 0))
    train(state, range(1, 2))
    folder = tmp_path / save_checkpoint(tmp_path, state, model_folder)
    path = folder / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(WeightsError, match="branch-0-step-1"):
        load_checkpoint(folder, CONFIG.learner)


def test_a_checkpoint_of_another_schema_is_refused(model_folder: Path, tmp_path: Path) -> None:
    state = LearnerState.create(model_folder, CONFIG.learner, PolicyVersion(0, 0))
    folder = tmp_path / save_checkpoint(tmp_path, state, model_folder)
    facts = json.loads((folder / STATE_FACTS).read_text()) | {"schema": 99}
    (folder / STATE_FACTS).write_text(json.dumps(facts))
    with pytest.raises(WeightsError, match="has schema 99, this code reads 2"):
        load_checkpoint(folder, CONFIG.learner)


def test_names_and_versions_correspond() -> None:
    assert checkpoint_version(checkpoint_name(PolicyVersion(3, 12))) == PolicyVersion(3, 12)
    assert checkpoint_version(".new-branch-0-step-1") is None
    assert checkpoint_version("notes") is None


def make_folders(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir()


def test_the_newest_checkpoints_stay(tmp_path: Path) -> None:
    retention = Retention(tmp_path, keep=3, protected=())
    for step in range(1, 7):
        make_folders(tmp_path, f"branch-0-step-{step}")
        retention.added(f"branch-0-step-{step}")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        f"branch-0-step-{step}" for step in (4, 5, 6)
    ]


def test_the_resumed_checkpoint_stays_until_two_newer_exist(tmp_path: Path) -> None:
    # Step 11 was written after the ledger's last commit: stale, and not a "newer" one.
    make_folders(tmp_path, *(f"branch-0-step-{step}" for step in (9, 10, 11)), "notes")
    retention = Retention(tmp_path, keep=2, protected=("branch-0-step-10",))
    make_folders(tmp_path, "branch-1-step-11")
    assert retention.added("branch-1-step-11") == ["branch-0-step-9", "branch-0-step-11"]
    assert (tmp_path / "branch-0-step-10").exists()
    make_folders(tmp_path, "branch-1-step-12")
    assert retention.added("branch-1-step-12") == ["branch-0-step-10"]
    assert (tmp_path / "notes").exists()
