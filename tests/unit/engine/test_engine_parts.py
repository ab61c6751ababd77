from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from spade_async.engine.builtin.cache import SlotCache, causal_mask
from spade_async.engine.builtin.llama import LlamaModel
from spade_async.engine.builtin.model import HuggingFaceModel, open_model
from spade_async.engine.builtin.sampler import sample
from spade_async.errors import ConfigError
from tests.support.tiny_chat_model import make_chat_model

LLAMAS: dict[str, dict[str, Any]] = {
    "grouped heads, tied": {},
    "one head each, untied": {"kv_heads": 4, "tied": False},
    "wide heads": {"head_dim": 12, "rms_norm_eps": 1e-3},
    "scaled rotary": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
}


@pytest.mark.parametrize("options", LLAMAS.values(), ids=LLAMAS)
@torch.inference_mode()
def test_the_fast_llama_gives_what_hugging_face_gives(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    folder = make_chat_model(tmp_path, **options)
    fast, general = open_model(folder, 64), open_model(folder, 64, general=True)
    assert isinstance(fast, LlamaModel)
    assert isinstance(general, HuggingFaceModel)
    ids = torch.randint(5, 90, (3, 41), generator=torch.Generator().manual_seed(1))
    last = torch.tensor([10, 40, 30])
    caches = fast.new_cache(4, 64), general.new_cache(4, 64)
    given = []
    for model, cache in zip((fast, general), caches, strict=True):
        cache.reserve(42)
        read = model.forward(cache, 1, ids, torch.arange(41).expand(3, 41), last)
        # Rows of different lengths go on together.
        more = model.forward(cache, 1, ids[:, :1], (last + 1).unsqueeze(1), torch.zeros(3).long())
        given.append((read, more))
        for row in range(3):
            whole = torch.cat([ids[row, : last[row] + 1], ids[row, :1]])
            logits = model.score(whole)
            torch.testing.assert_close(read[row], logits[-2], rtol=0, atol=1e-5)
            torch.testing.assert_close(more[row], logits[-1], rtol=0, atol=1e-5)
    torch.testing.assert_close(given[0], given[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"attention_bias": True},
        {"mlp_bias": True},
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}},
    ],
)
def test_a_llama_the_fast_path_does_not_compute_takes_the_general_one(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    assert isinstance(open_model(make_chat_model(tmp_path, **options), 64), HuggingFaceModel)


def test_a_weight_is_in_memory_once_on_the_fast_path(tmp_path: Path) -> None:
    model = open_model(make_chat_model(tmp_path), 64)
    assert isinstance(model, LlamaModel)
    attention = model.network.model.layers[0].self_attn
    joined = model._layers[0].query_key_value
    assert attention.q_proj.weight.data_ptr() == joined.data_ptr()
    attention.v_proj.weight.data.fill_(7.0)
    assert bool((joined[-16:] == 7.0).all())


def test_attention_the_engine_cannot_run_is_refused_by_name(tmp_path: Path) -> None:
    windowed = make_chat_model(
        tmp_path / "w",
        "qwen2",
        use_sliding_window=True,
        sliding_window=32,
        max_window_layers=1,
    )
    with pytest.raises(ConfigError, match=r"window 32.*use a model with full attention"):
        open_model(windowed, 64)
    open_model(windowed, 32)
    with pytest.raises(ConfigError, match=r"max_context_tokens=257 is more than the 256"):
        open_model(make_chat_model(tmp_path / "s"), 257)
    (windowed / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ConfigError, match=r"cannot be loaded.*make or copy the model again"):
        open_model(windowed, 32)


def test_tokens_are_drawn_with_their_probabilities() -> None:
    logits = torch.tensor([2.0, 0.0, -math.inf, 1.0, -1.0])
    temperature = 0.8
    count = 4000
    uniforms = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    drawn = sample(logits.expand(count, 5), torch.full((count,), temperature), uniforms)
    wanted = torch.softmax(logits / temperature, -1)
    shares = torch.bincount(drawn.ids, minlength=5) / count
    torch.testing.assert_close(shares, wanted, rtol=0, atol=1 / count)
    torch.testing.assert_close(drawn.logprobs, wanted[drawn.ids].log(), rtol=0, atol=1e-5)


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]]).expand(3, 5)
    edges = torch.tensor([0.0, 0.5, 1 - 1e-16], dtype=torch.float64)
    assert sample(logits, torch.ones(3), edges).ids.tolist() == [1, 3, 3]


def test_greedy_and_sampled_rows_share_a_batch() -> None:
    logits = torch.tensor([[0.0, 3.0, 0.0], [0.0, 3.0, 0.0]])
    drawn = sample(logits, torch.tensor([0.0, 1.0]), torch.tensor([0.999, 0.999]).double())
    assert drawn.ids.tolist() == [1, 2]
    wanted = torch.log_softmax(logits[0], -1)
    torch.testing.assert_close(drawn.logprobs, wanted[[1, 2]])


def test_a_row_that_is_not_finite_says_so_and_spoils_no_other() -> None:
    logits = torch.tensor([[0.0, math.nan], [0.0, 1.0]])
    drawn = sample(logits, torch.ones(2), torch.full((2,), 0.5).double())
    assert math.isnan(float(drawn.logprobs[0]))
    assert math.isfinite(float(drawn.logprobs[1]))


def test_the_cache_grows_in_buckets_and_keeps_its_entries() -> None:
    cache = SlotCache(1, slots=2, kv_heads=1, head_dim=2, max_tokens=100)
    assert cache.capacity == 64
    places = cache.places(1, torch.tensor([[3, 4]]))
    cache.write(0, places, torch.ones(2, 2), 2 * torch.ones(2, 2))
    cache.reserve(65)
    assert cache.capacity == 100
    keys, values = cache.read(0, 1, 1, 6)
    assert keys[0, 0, :, 0].tolist() == [0, 0, 0, 1, 1, 0]
    assert values[0, 0, :, 0].tolist() == [0, 0, 0, 2, 2, 0]
    cache.move(1, 0, 5)
    assert cache.read(0, 0, 1, 6)[0][0, 0, :, 0].tolist() == [0, 0, 0, 1, 1, 0]
    cache.clear(1)
    assert not cache.read(0, 1, 1, 100)[1].any()
    assert cache.num_bytes == 2 * 2 * 100 * 2 * 4


def test_a_query_sees_its_own_row_up_to_itself() -> None:
    mask = causal_mask(torch.tensor([[1, 2], [0, 1]]), 3)
    assert (mask == 0).tolist() == [
        [[[True, True, False], [True, True, True]]],
        [[[True, False, False], [True, True, False]]],
    ]
