"""The parts of the vLLM engine that need no vLLM: staging, requests, slots, arguments, installs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from spade_async.config.held_model import LoraConfig
from spade_async.config.schema import EngineConfig
from spade_async.engine.protocol import Sampling
from spade_async.engine.vllm import adapters
from spade_async.engine.vllm.adapters import adapter_arguments
from spade_async.engine.vllm.arguments import cache_bytes, engine_arguments, environment
from spade_async.engine.vllm.ipc_handle import plain_handle, rebuild_arguments
from spade_async.engine.vllm.places import Places
from spade_async.engine.vllm.scores import prompt_scores
from spade_async.engine.vllm.staged import loader_names, stage
from spade_async.engine.vllm.stream import Stream, span_versions, token_versions
from spade_async.errors import ConfigError, GenerationError, WeightsError
from spade_async.types import PolicyVersion
from spade_async.weights.header import WeightHeader, folder_shapes, read_header
from spade_async.weights.store import FileWeightStore

V = PolicyVersion(0, 3)


def flat(rows: list[dict[int, float]]) -> Any:
    """As vLLM's FlatLogprobs holds them."""
    found = SimpleNamespace(start_indices=[], end_indices=[], token_ids=[], logprobs=[])
    for row in rows:
        found.start_indices.append(len(found.token_ids))
        found.token_ids += row
        found.logprobs += row.values()
        found.end_indices.append(len(found.token_ids))
    return found


def life(
    tokens: list[int], starts: list[tuple[str, int]], experts: np.ndarray | None = None
) -> Any:
    """As vLLM's RequestState holds a request."""
    return SimpleNamespace(
        detokenizer=SimpleNamespace(output_token_ids=tokens, num_output_tokens=lambda: len(tokens)),
        lora_name=None,
        logprobs_processor=SimpleNamespace(logprobs=flat([{t: -t / 10} for t in tokens])),
        weight_version_starts=starts,
        routed_experts_chunks=[] if experts is None else [experts[:2], experts[2:]],
    )


def ask(**keys: Any) -> Sampling:
    return Sampling(
        **{"temperature": 1.0, "max_new_tokens": 8, "stop_token_ids": (9,), "seed": 5, **keys}
    )


def test_a_request_goes_on_where_the_dead_engine_was() -> None:
    stream = Stream([1, 2], ask())
    stream.state = life([3, 4, 5], [("7", 0), ("8", 2)])
    assert stream.num_tokens == 3
    first = stream.seed
    stream.keep()
    stream.lives += 1
    assert not stream.is_done
    assert stream.seed != first, "the first random numbers would come again"
    stream.state = life([6, 9], [("8", 0)])
    stream.keep()
    assert stream.is_done
    said = stream.generation()
    assert said.token_ids.tolist() == [3, 4, 5, 6, 9]
    assert said.versions.tolist() == [7, 7, 8, 8, 8]
    np.testing.assert_allclose(said.logprobs, [-0.3, -0.4, -0.5, -0.6, -0.9])
    assert said.finish_reason == "stop"


def test_a_life_that_said_nothing_leaves_nothing() -> None:
    stream = Stream([1], ask())
    stream.keep()
    stream.state = life([], [])
    stream.keep()
    assert (stream.tokens, stream.versions, stream.is_done) == ([], [], False)


def test_tokens_without_a_version_are_a_fault() -> None:
    assert span_versions([("1", 0, 2), ("4", 2, 3)], 3) == [1, 1, 4]
    assert span_versions([("1", 0, 2), ("4", 2, 9)], 3) == [1, 1, 4]
    for spans in ([], [("1", 1, 3)], [("1", 0, 1), ("2", 2, 3)]):
        with pytest.raises(GenerationError, match="of 3 tokens"):
            span_versions(spans, 3)


def test_output_that_is_not_finite_is_a_fault() -> None:
    stream = Stream([1], ask(max_new_tokens=1))
    stream.tokens, stream.logprobs, stream.versions = [3], [float("nan")], [V.packed]
    with pytest.raises(GenerationError, match=r"not finite \(weights 0\.3\)"):
        stream.generation()


def test_slots_are_given_in_order_and_to_the_urgent_first() -> None:
    places = Places(2)
    a, b, c, d = (Stream([1], ask()) for _ in range(4))
    urgent = Stream([1], ask(urgent=True))
    for stream in (a, b, c, d, urgent):
        places.enter(stream)
    assert places.running == [a, b]
    assert places.waiting == [urgent, c, d]
    places.leave(c)
    places.leave(a)
    assert places.running == [b, urgent]
    assert c.started_s is None
    time.sleep(0.01)
    for stream in (b, urgent, d):
        places.leave(stream)
    busy_s = places.stats()["busy_s"]
    assert busy_s >= 0.01
    time.sleep(0.01)
    again_s, idle_s = (places.stats()[name] for name in ("busy_s", "idle_s"))
    assert again_s == busy_s
    assert idle_s >= 0.01
    places.leave(a)  # harmless


def test_scores_at_another_temperature_are_those_of_scaled_logits() -> None:
    """The prompt's own token comes first and again among the others."""
    logits = np.array([[0.3, -1.0, 2.0], [1.5, 0.0, -0.5]])
    logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    ids = [0, 2, 1]
    rows = [{}, *(dict(enumerate(row)) for row in logprobs)]
    found = flat([{}, {}, {}])
    found.token_ids, found.logprobs, found.start_indices, found.end_indices = [], [], [], []
    for token, row in zip(ids, rows, strict=True):
        found.start_indices.append(len(found.token_ids))
        if row:
            found.token_ids += [token, *row]
            found.logprobs += [row[token], *row.values()]
        found.end_indices.append(len(found.token_ids))
    scaled = logits / 0.5
    wanted = scaled - np.log(np.exp(scaled).sum(1, keepdims=True))
    np.testing.assert_allclose(
        prompt_scores(found, ids, 0.5), [wanted[0, 2], wanted[1, 1]], rtol=1e-6
    )
    np.testing.assert_allclose(
        prompt_scores(found, ids, None), [logprobs[0, 2], logprobs[1, 1]], rtol=1e-6
    )
    with pytest.raises(GenerationError, match="3 of 4"):
        prompt_scores(found, [0, 2, 1, 1], None)


def test_each_stored_tensor_goes_in_once_under_the_folders_name() -> None:
    header = WeightHeader({"embed": (4, 2), "norm": (2,)}, {}, {"lm_head": "embed"})
    tied = {"lm_head": (4, 2), "norm": (2,)}
    assert loader_names(header, tied) == {"lm_head": "embed", "norm": "norm"}
    assert loader_names(header, {}) == {"embed": "embed", "norm": "norm"}
    constant = {"embed": (4, 2), "norm": (2,), "layers.0.rotary_emb.inv_freq": (8,)}
    assert loader_names(header, constant) == {"embed": "embed", "norm": "norm"}
    with pytest.raises(WeightsError, match=r"shape \(2,\) in the weights and \(3,\)"):
        loader_names(header, {"embed": (4, 2), "norm": (3,)})
    with pytest.raises(WeightsError, match="lack 'bias'"):
        loader_names(header, {"embed": (4, 2), "norm": (2,), "bias": (2,)})


def test_what_was_checked_stays_readable_until_it_is_closed(tmp_path: Path) -> None:
    store = FileWeightStore(tmp_path / "w", keep=2)
    embedding = torch.randn(4, 2)
    tensors = {"embed": embedding, "lm_head": embedding, "norm": torch.ones(2)}
    published = store.publish(V, tensors)
    staged = stage(V, published.location, published.digest, {"embed": (4, 2), "norm": (2,)})
    Path(published.location).unlink()
    info = staged.file_info()
    with open(info["path"], "rb") as file:
        assert os.fstat(file.fileno()).st_ino == info["inode"]
        assert read_header(file, "it").shapes == {"embed": (4, 2), "norm": (2,)}
    staged.close()
    assert not Path(info["path"]).exists()
    # Tied weights that were written twice are accepted as long as they agree.
    twice = store.publish(V, tensors | {"lm_head": embedding.clone()})
    stage(V, twice.location, twice.digest, {"embed": (4, 2), "norm": (2,)}).close()
    other = store.publish(V, tensors | {"lm_head": embedding + 1})
    with pytest.raises(WeightsError, match="'lm_head', which the model does not have"):
        stage(V, other.location, other.digest, {"embed": (4, 2), "norm": (2,)})
    bad = store.publish(V, tensors | {"norm": torch.tensor([1.0, float("inf")])})
    with pytest.raises(WeightsError, match="'norm' has a value that is not finite"):
        stage(V, bad.location, bad.digest, {"embed": (4, 2), "norm": (2,)})


def test_a_damaged_header_is_a_weights_error(tmp_path: Path) -> None:
    damaged = {"empty": b"", "short": b"\x10" + b"\0" * 9, "text": b"no header" * 9}
    for name, data in damaged.items():
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(data)
        with pytest.raises(WeightsError, match="damaged"):
            folder_shapes(tmp_path)
        path.unlink()
    assert folder_shapes(tmp_path) == {}


def model_folder(root: Path, **keys: Any) -> Path:
    config = {
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 128,
        "num_hidden_layers": 3, "max_position_embeddings": 256, "vocab_size": 50, **keys,
    }  # fmt: skip
    (root / "config.json").write_text(json.dumps(config))
    return root


def test_arguments_on_a_cpu_and_on_a_gpu(tmp_path: Path) -> None:
    folder = model_folder(tmp_path)
    config = EngineConfig(kind="vllm", slots=8)
    cpu = engine_arguments(folder, config, 256, is_cpu=True)
    # 2 x layers x kv heads x head size x 4 bytes x 128 tokens x (2 blocks of 8 requests and one)
    assert cpu["kv_cache_memory_bytes"] == max(2 * 3 * 2 * 32 * 4 * 128 * (2 * 8 + 1), 16 << 20)
    assert (cpu["dtype"], cpu["enforce_eager"]) == ("float32", True)
    assert cpu["weight_transfer_config"] == {"backend": "spade_async_file"}
    assert cpu["max_model_len"] == 256, "the model has no place for one more"
    assert engine_arguments(folder, config, 200, is_cpu=True)["max_model_len"] == 201
    little = EngineConfig(kind="vllm", slots=8, prefill_tokens=16)
    whole = engine_arguments(folder, little, 256, is_cpu=True)
    assert (whole["enable_chunked_prefill"], whole["max_num_batched_tokens"]) == (False, 256)
    gpu = engine_arguments(folder, config, 256, is_cpu=False)
    assert "enable_chunked_prefill" not in gpu
    assert (gpu["dtype"], gpu["enforce_eager"]) == ("bfloat16", False)
    assert gpu["weight_transfer_config"] == {"backend": "spade_async_ipc"}
    assert "kv_cache_memory_bytes" not in gpu
    kept = EngineConfig(kind="vllm", on_swap="keep")
    assert not engine_arguments(folder, kept, 256, is_cpu=True)["enable_prefix_caching"]
    assert environment(config, is_cpu=True)["TORCHDYNAMO_DISABLE"] == "1"
    assert "TORCHDYNAMO_DISABLE" not in environment(config, is_cpu=False)


def test_adapters_need_no_weight_transfer_and_leave_the_head_alone() -> None:
    lora = LoraConfig(rank=9)
    shapes = {
        "model.embed_tokens.weight": (90, 8),
        "model.layers.0.self_attn.q_proj.weight": (8, 8),
        "model.layers.0.mlp.gate.weight": (4, 8),
        "model.norm.weight": (8,),
        "lm_head.weight": (90, 8),
    }
    found = adapter_arguments(lora, shapes)
    assert found["lora_target_modules"] == ["q_proj"]
    assert found["max_lora_rank"] == 16
    named = LoraConfig(rank=8, targets=("self_attn.o_proj",))
    assert adapter_arguments(named, {})["lora_target_modules"] == ["o_proj"]
    with pytest.raises(ConfigError, match=r"learner\.lora\.targets"):
        adapter_arguments(lora, {})


def test_adapters_of_a_mixture_of_experts_are_refused_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes = {
        "model.layers.0.self_attn.q_proj.weight": (8, 8),
        "model.layers.0.mlp.experts.0.up_proj.weight": (8, 8),
    }
    monkeypatch.setattr(adapters, "has_nvidia_gpu", lambda: False)
    with pytest.raises(ConfigError, match=r'on a GPU alone.*learner\.lora\.push="merged"'):
        adapter_arguments(LoraConfig(rank=9), shapes)
    monkeypatch.setattr(adapters, "has_nvidia_gpu", lambda: True)
    assert adapter_arguments(LoraConfig(rank=9), shapes)["enable_lora"]


def test_tokens_of_an_adapters_request_have_its_version() -> None:
    assert token_versions([("0", 0, 3)], 3, "7-2") == [7, 7, 7]
    assert token_versions([("5", 0, 2)], 2, None) == [5, 5]


def test_models_that_cannot_run_are_refused(tmp_path: Path) -> None:
    config = EngineConfig(kind="vllm")
    with pytest.raises(ConfigError, match="more than the 256 positions"):
        engine_arguments(model_folder(tmp_path), config, 257, is_cpu=True)
    small = model_folder(tmp_path, hidden_size=64)
    with pytest.raises(ConfigError, match="heads of size 16"):
        cache_bytes(small, config, 128)
    ipc = EngineConfig(kind="vllm", vllm={"transfer": "ipc"})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs a GPU"):
        engine_arguments(model_folder(tmp_path), ipc, 128, is_cpu=True)


def test_a_cuda_handle_travels_as_plain_values() -> None:
    """The arguments that torch gives for a CUDA tensor, which a CPU cannot make."""
    arguments = (
        torch.Tensor, torch.Size([3, 2]), (2, 1), 0, torch.storage.TypedStorage, torch.bfloat16,
        0, b"handle", 12, 512, False, b"counter", 7, b"event", True,
    )  # fmt: skip
    plain = plain_handle(arguments)
    assert json.loads(json.dumps(plain, default=list))[1] == [3, 2]
    assert rebuild_arguments(plain, torch) == arguments
    with pytest.raises(ValueError, match="not a type of torch"):
        rebuild_arguments([*plain[:5], "Tensor", *plain[6:]], torch)
    with pytest.raises(TypeError, match="argument 7"):
        plain_handle([*arguments[:7], object(), *arguments[8:]])


WATCHED = """
import multiprocessing, os, sys, time
from spade_async.engine.vllm.watchdog import watch_parent

def child():
    watch_parent()
    time.sleep(600)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    print(process.pid, flush=True)
    time.sleep(600)
"""


def test_a_watched_child_dies_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "watched.py"
    script.write_text(WATCHED)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    fd = os.pidfd_open(child)
    # Its second thread is the watchdog; until then its imports are under way.
    while len(os.listdir(f"/proc/{child}/task")) < 2:
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(10_000), "the child outlives its parent"
    os.close(fd)
