"""Bad model folders: each is one line with the remedy, before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from spade_async.commands.doctor_config import config_findings
from spade_async.errors import ConfigError
from spade_async.supervisor.model_folder import check_model_folder
from spade_async.supervisor.model_numbers import check_numbers
from tests.support.hf_models import make_model
from tests.support.tiny_chat_model import make_chat_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_chat_model(tmp_path / "model")


def settings(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def shards(folder: Path, count: int, *, index: bool) -> list[Path]:
    """Cut the weights of a folder into numbered files."""
    from safetensors.torch import load_file

    whole = folder / "model.safetensors"
    tensors = load_file(whole)
    whole.unlink()
    names = sorted(tensors)
    files, owner = [], {}
    for n in range(count):
        file = folder / f"model-{n + 1:05d}-of-{count:05d}.safetensors"
        save_file({name: tensors[name] for name in names[n::count]}, file)
        owner |= dict.fromkeys(names[n::count], file.name)
        files.append(file)
    if index:
        path = folder / "model.safetensors.index.json"
        path.write_text(json.dumps({"metadata": {}, "weight_map": owner}))
    return files


@pytest.mark.parametrize("index", [True, False])
def test_whole_folders_pass(folder: Path, index: bool) -> None:
    check_model_folder(folder, 256)
    check_numbers(folder)
    shards(folder, 3, index=index)
    check_model_folder(folder, 256)
    check_numbers(folder)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("number", [0, 2])
def test_a_missing_shard_is_named(folder: Path, index: bool, number: int) -> None:
    files = shards(folder, 3, index=index)
    files[number].unlink()
    with pytest.raises(ConfigError, match=f"lacks {files[number].name}, a part of its weights"):
        check_model_folder(folder)


def test_a_weight_left_out_without_an_index_is_counted(folder: Path) -> None:
    """transformers would fill it with random numbers and go on."""
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    gone = tensors.pop("model.layers.1.self_attn.o_proj.weight")
    save_file(tensors, folder / "model.safetensors")
    whole = sum(t.numel() for t in tensors.values()) + gone.numel()
    words = f"are {whole - gone.numel():,} numbers, and by config.json the model has {whole:,}"
    with pytest.raises(ConfigError, match=words):
        check_model_folder(folder)
    # Stored twice, a tied head is no more than stored once; an old buffer is no weight.
    extra = {"lm_head.weight": torch.zeros(9, 9), "model.rotary_emb.inv_freq": torch.zeros(9999)}
    save_file(tensors | extra, folder / "model.safetensors")
    with pytest.raises(ConfigError, match=words):
        check_model_folder(folder)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "qwen3_moe", "gpt2", "gemma2"])
def test_the_count_lets_whole_models_of_every_kind_pass(tmp_path: Path, kind: str) -> None:
    check_model_folder(make_model(tmp_path, kind))


def test_a_weight_that_no_file_holds_is_named(folder: Path) -> None:
    shards(folder, 2, index=True)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.extra"] = "model-00001-of-00002.safetensors"
    path.write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"names the weight 'model\.extra', which no file holds"):
        check_model_folder(folder)


@pytest.mark.parametrize("keeps_settings", [True, False])
def test_a_folder_without_a_vocabulary_has_no_tokenizer(folder: Path, keeps_settings: bool) -> None:
    (folder / "tokenizer.json").unlink()
    if not keeps_settings:
        (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ConfigError, match=r"it has no tokenizer .*copy it from the model"):
        check_model_folder(folder)


def test_a_tokenizer_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match=r"tokenizer\.json cannot be read .*copy it again"):
        check_model_folder(folder)


def test_a_tokenizer_of_another_model_is_told_by_its_ids(folder: Path, tmp_path: Path) -> None:
    path = folder / "tokenizer.json"
    tokens = json.loads(path.read_text())
    tokens["added_tokens"].append({"id": 5000, "content": "<more>"})
    path.write_text(json.dumps(tokens))
    with pytest.raises(ConfigError, match=r"ids up to 5000, the model knows \d+ tokens"):
        check_model_folder(folder)


def test_a_configuration_of_another_model_is_told_by_the_embedding(folder: Path) -> None:
    settings(folder, vocab_size=9999)
    with pytest.raises(ConfigError, match=r"vocab_size=9999, its weights hold \d+ tokens"):
        check_model_folder(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "float9"}, "dtype='float9', which is none of"),
        ({"dtype": None, "torch_dtype": "float8_e4m3fn"}, None),
        ({"quantization_config": {"quant_method": "gptq"}}, "it is quantised"),
    ],
)
def test_types_that_cannot_be_trained_are_refused(
    folder: Path, changes: dict[str, Any], words: str | None
) -> None:
    settings(folder, **changes)
    if words is None:  # "dtype" is what counts where both are written
        check_model_folder(folder)
        return
    with pytest.raises(ConfigError, match=words):
        check_model_folder(folder)


def test_weights_of_a_type_that_cannot_be_trained_are_refused(folder: Path) -> None:
    save_file({"w": torch.zeros(2, dtype=torch.int8)}, folder / "more.safetensors")
    with pytest.raises(ConfigError, match="the weight 'w' is of type I8"):
        check_model_folder(folder)


def test_fewer_positions_than_the_context_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"256 positions, model\.max_context_tokens=257"):
        check_model_folder(folder, 257)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("most_bytes", [1 << 30, 0])
def test_weights_that_are_not_finite_are_named(
    tmp_path: Path, dtype: torch.dtype, value: float, most_bytes: int
) -> None:
    good = torch.linspace(-65504, 65504, 1000).to(dtype)
    bad = good.clone()
    bad[-1] = value
    save_file({"good": good}, tmp_path / "a.safetensors")
    check_numbers(tmp_path, most_bytes)
    save_file({"bad": bad}, tmp_path / "b.safetensors")
    with pytest.raises(ConfigError, match=r"the weight 'bad' in b\.safetensors"):
        check_numbers(tmp_path, most_bytes)


def test_of_a_large_model_the_ends_of_a_tensor_are_read(tmp_path: Path) -> None:
    values = torch.zeros(3 << 18)
    values[len(values) // 2] = np.nan
    save_file({"w": values}, tmp_path / "a.safetensors")
    check_numbers(tmp_path, 0)
    with pytest.raises(ConfigError, match="'w'"):
        check_numbers(tmp_path)


def test_the_doctor_says_what_is_wrong_with_the_model(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(f'[model]\npath = "{folder}"\nmax_context_tokens = 256\n'
                      '[domain]\nhook = "spade_async.nano.domain"\n'
                      '[designer]\nmax_new_tokens = 80\nskills = ["Mathematical Reasoning"]\n'
                      '[agent]\nmax_new_tokens_per_turn = 14\n')  # fmt: skip
    found = {f.name: f for f in config_findings(config)}
    assert found["model"].ok
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    found = {f.name: f for f in config_findings(config)}
    assert not found["model"].ok
    assert found["model"].needed
    assert "it has no tokenizer" in found["model"].detail
