"""Any causal LM of transformers is trained, published and written so that others can read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from spade_async.config.schema import Config
from spade_async.engine.builtin.model import open_model
from spade_async.learner.adapter import ADAPTER_TENSORS
from spade_async.learner.checkpoint import load_checkpoint, save_checkpoint
from spade_async.learner.ranks import leave
from spade_async.learner.state import LearnerState
from spade_async.learner.update import Updater
from spade_async.types import PolicyVersion
from tests.support.hf_models import KINDS, make_model
from tests.support.train_samples import random_samples

torch.set_num_threads(1)

IDS = torch.tensor([[5, 9, 33, 12, 7, 60, 21]])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {kind: make_model(root / kind, kind) for kind in KINDS}


def make(folder: Path, **learner: Any) -> tuple[Config, LearnerState]:
    config = Config.model_validate({"learner": {"lr": 1e-2, "warmup_steps": 0} | learner})
    return config, LearnerState.create(folder, config.learner, PolicyVersion(0, 0))


def train(state: LearnerState, config: Config, steps: range) -> None:
    updater = Updater(state, config)
    for step in steps:
        result = updater.update(random_samples(6, seed=step), step)
        assert result.applied, (result.reason, result.skipped)
        state.version = PolicyVersion(0, step)


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model.eval()(input_ids=IDS, use_cache=False).logits
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_learns_and_its_checkpoint_is_an_ordinary_folder(
    kind: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    config, state = make(folders[kind])
    before = logits(state.model)
    train(state, config, range(1, 3))
    after = logits(state.model)
    assert (after - before).abs().max() > 1e-3
    name = save_checkpoint(tmp_path, state, folders[kind])
    read = AutoModelForCausalLM.from_pretrained(tmp_path / name, dtype=torch.float32)
    torch.testing.assert_close(logits(read), after, rtol=0, atol=1e-5)
    AutoTokenizer.from_pretrained(tmp_path / name)
    # vLLM reads every such file as weights of the model.
    assert [p.name for p in (tmp_path / name).glob("*.safetensors")] == ["model.safetensors"]

    again = load_checkpoint(tmp_path / name, config.learner)
    train(state, config, range(3, 4))
    train(again, config, range(3, 4))
    assert torch.equal(logits(again.model), logits(state.model))


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe"])
def test_published_names_are_those_of_the_files(kind: str, folders: dict[str, Path]) -> None:
    _, state = make(folders[kind])
    published = state.published_tensors(file_names=True)
    with safe_open(folders[kind] / "model.safetensors", framework="pt") as file:
        assert set(published) == set(file.keys())
        for name, tensor in published.items():
            assert torch.equal(tensor, file.get_tensor(name)), name


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe", "gpt2"])
def test_the_built_in_engine_takes_what_is_published(kind: str, folders: dict[str, Path]) -> None:
    config, state = make(folders[kind])
    engine = open_model(folders[kind], 64)
    train(state, config, range(1, 2))
    engine.parameters.swap(engine.parameters.check(state.published_tensors(widened=True)))
    torch.testing.assert_close(engine.score(IDS[0]), logits(state.model)[0], rtol=0, atol=1e-5)


def test_bfloat16_passes_keep_float32_masters(folders: dict[str, Path], tmp_path: Path) -> None:
    try:
        config, state = make(folders["qwen3"], dtype="bfloat16", lr=1e-5)
        exact_config, exact = make(folders["qwen3"], lr=1e-5)
        train(state, config, range(1, 4))
        train(exact, exact_config, range(1, 4))
        start = LearnerState.create(folders["qwen3"], exact_config.learner, PolicyVersion(0, 0))
        moved = {n: p.detach() for n, p in start.parameters.items()}
        for name, tensor in state.whole_tensors().items():
            assert tensor.dtype == torch.float32
            # A step of 1e-5 is far below what bfloat16 can add to these weights.
            change = tensor - moved[name]
            assert 0 < change.abs().max() < 4e-5
            wanted = exact.parameters[name].detach() - moved[name]
            assert torch.sign(change).eq(torch.sign(wanted)).float().mean() > 0.8, name
        assert {t.dtype for t in state.published_tensors().values()} == {torch.bfloat16}
        name = save_checkpoint(tmp_path, state, folders["qwen3"])
        again = load_checkpoint(tmp_path / name, config.learner)
        train(state, config, range(4, 5))
        train(again, config, range(4, 5))
        for name, tensor in state.whole_tensors().items():
            assert torch.equal(again.whole_tensors()[name], tensor), name
    finally:
        leave()


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe"])
def test_layers_computed_again_give_the_same_step(kind: str, folders: dict[str, Path]) -> None:
    found = []
    for again in (False, True):
        config, state = make(folders[kind], activation_checkpointing=again)
        train(state, config, range(1, 3))
        found.append(state.published_tensors())
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe", "gpt2"])
def test_an_adapter_is_published_merged_and_read_by_peft(
    kind: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft", reason="the extra lora is not installed")
    lora = {"rank": 4, "alpha": 8.0}
    config, state = make(folders[kind], lora=lora, kl_to_start=0.1)
    assert all("lora_" in name for name in state.parameters)
    plain = AutoModelForCausalLM.from_pretrained(folders[kind], dtype=torch.float32)
    assert torch.equal(logits(state.model), logits(plain))
    train(state, config, range(1, 3))
    after = logits(state.model)
    assert (after - logits(plain)).abs().max() > 1e-3

    published = state.published_tensors()
    assert set(published) == set(plain.state_dict())
    plain.load_state_dict(published)
    torch.testing.assert_close(logits(plain), after, rtol=0, atol=1e-5)

    folder = tmp_path / save_checkpoint(tmp_path, state, folders[kind])
    merged = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.testing.assert_close(logits(merged), after, rtol=0, atol=1e-5)
    base = AutoModelForCausalLM.from_pretrained(folders[kind], dtype=torch.float32)
    adapted = peft.PeftModel.from_pretrained(base, folder / "adapter")
    torch.testing.assert_close(logits(adapted), after, rtol=0, atol=1e-5)

    alone, written = state.published_adapter(), load_file(folder / "adapter" / ADAPTER_TENSORS)
    assert alone.keys() == written.keys()
    assert all(torch.equal(tensor, written[name]) for name, tensor in alone.items())

    again = load_checkpoint(folder, config.learner)
    train(state, config, range(3, 4))
    train(again, config, range(3, 4))
    assert torch.equal(logits(again.model), logits(state.model))


def test_the_start_policy_of_an_adapter_is_the_model_without_it(
    folders: dict[str, Path],
) -> None:
    pytest.importorskip("peft", reason="the extra lora is not installed")
    config, state = make(folders["llama"], lora={"rank": 4}, kl_to_start=0.1)
    first = Updater(state, config).update(random_samples(6, seed=1), 1)
    assert first.metrics["learner/kl_to_start"] == 0.0
    second = Updater(state, config).update(random_samples(6, seed=1), 2)
    assert second.metrics["learner/kl_to_start"] > 0.0


def test_a_checkpoint_of_an_adapter_is_not_taken_for_one_of_all_weights(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="the extra lora is not installed")
    _, state = make(folders["llama"], lora={"rank": 4})
    folder = tmp_path / save_checkpoint(tmp_path, state, folders["llama"])
    facts = json.loads((folder / "learner_state.json").read_text())
    assert facts["base_folder"] == str(folders["llama"])
    with pytest.raises(Exception, match=r"written with an adapter, and learner\.lora\.rank=0"):
        load_checkpoint(folder, Config().learner)
