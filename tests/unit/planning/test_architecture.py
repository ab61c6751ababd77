"""Counts by formula against the networks themselves, on torch's meta device (nothing is stored)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from spade_async.errors import ConfigError
from spade_async.planning.architecture import (
    architecture,
    known_names,
    known_settings,
)

CLASSES: dict[str, type[PretrainedConfig]] = {
    "llama": LlamaConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "qwen3_moe": Qwen3MoeConfig,
}
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_hidden_layers": 2,
    "vocab_size": 50,
}
MOE: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}


def network(settings: dict[str, Any], device: str = "meta") -> Any:
    plain = {k: v for k, v in settings.items() if k not in ("model_type", "architectures", "dtype")}
    with torch.device(device):
        return AutoModelForCausalLM.from_config(CLASSES[settings["model_type"]](**plain))


def known(name: str) -> dict[str, Any]:
    settings = known_settings(name)
    assert settings is not None
    return settings


@pytest.mark.parametrize("name", known_names())
def test_weights_of_a_built_in_shape_are_those_of_the_network(name: str) -> None:
    settings = known(name)
    on_meta = network(settings)
    counted = sum(parameter.numel() for parameter in on_meta.parameters())
    assert architecture(settings, name).num_weights == counted


def test_published_sizes() -> None:
    """4.0, 8.2 and 30.5 billion; 3.3 billion of them at work for a token; 135 million."""
    sizes = {n: architecture(known(n), n).num_weights for n in known_names()}
    assert sizes["qwen3-4b-instruct-2507"] == 4_022_468_096
    assert sizes["qwen3-8b"] == 8_190_735_360
    assert sizes["qwen3-30b-a3b-instruct-2507"] == 30_532_122_624
    assert sizes["smollm2"] == 134_515_008
    moe = architecture(known("qwen3-30b-a3b-instruct-2507"), "moe")
    assert moe.num_active == pytest.approx(3.04e9, rel=0.01)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("tied", [True, False])
def test_weights_of_small_networks_of_each_kind(kind: str, tied: bool) -> None:
    settings = {**SMALL, "model_type": kind, "tie_word_embeddings": tied}
    if kind == "qwen3_moe":
        settings |= MOE
    if kind == "qwen2":
        settings["head_dim"] = 16
    counted = sum(p.numel() for p in network(settings).parameters())
    assert architecture(settings, kind).num_weights == counted


@pytest.mark.parametrize("kind", ["llama", "qwen3", "qwen3_moe"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_a_layer_keeps_is_what_autograd_saves(kind: str, dtype: torch.dtype) -> None:
    settings = {**SMALL, "model_type": kind, "hidden_size": 128, "intermediate_size": 256}
    if kind == "qwen3_moe":
        settings |= MOE
    saved = [_saved({**settings, "num_hidden_layers": n}, dtype) for n in (1, 2)]
    found = architecture(settings, kind).saved_bytes_per_token(dtype.itemsize)
    assert found == pytest.approx((saved[1] - saved[0]) / TOKENS, rel=0.05)


TOKENS = 64


def _saved(settings: dict[str, Any], dtype: torch.dtype) -> int:
    """Bytes that autograd keeps of one pass through the layers, weights aside."""
    model = network(settings, "cpu").to(dtype)
    weights = {p.untyped_storage()._cdata for p in model.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage
        return tensor

    ids = torch.zeros(1, TOKENS, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.model(input_ids=ids, use_cache=False)
    return sum(storage.nbytes() for storage in kept.values())


def test_keys_and_values_of_a_token() -> None:
    """Qwen3-8B: 36 layers x 8 heads x 128 numbers, keys and values: 144 KiB in bfloat16."""
    assert 2 * architecture(known("qwen3-8b"), "x").kv_numbers_per_token == 144 << 10


def test_adapters_on_all_linear_layers_of_a_dense_network() -> None:
    """Known from elsewhere: rank 16 on Qwen3-4B is 33,030,144 numbers."""
    dense = architecture(known("qwen3-4b-instruct-2507"), "x")
    assert dense.lora_weights(16) == 33_030_144


def test_the_nano_shape_is_the_nano_model() -> None:
    from spade_async.nano.model import build_model

    counted = sum(p.numel() for p in build_model(0).parameters())
    assert architecture(known("nano"), "nano").num_weights == counted


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model_type": "mamba"}, "model_type='mamba'"),
        ({**SMALL, "model_type": "llama", "vocab_size": "many"}, "a number that is none"),
        ({"model_type": "llama", "hidden_size": 4}, "lacks 'num_attention_heads'"),
    ],
)
def test_what_cannot_be_counted_is_said(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        architecture(settings, "it")
