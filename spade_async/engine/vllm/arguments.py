"""vLLM's arguments and environment from ours. Of the machine only config.json is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spade_async.config.held_model import LoraConfig
from spade_async.config.schema import EngineConfig
from spade_async.engine.offline import check_model_folder
from spade_async.engine.vllm.adapters import adapter_arguments
from spade_async.engine.vllm.plugin import FILE_TRANSFER, IPC_TRANSFER
from spade_async.engine.vllm.watchdog import OURS
from spade_async.errors import ConfigError
from spade_async.weights.header import folder_shapes

CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""What vLLM's attention on a CPU is compiled for."""
CPU_BLOCK_TOKENS = 128
_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_MIN_CACHE_BYTES = 16 << 20


def text_config(folder: Path) -> dict[str, Any]:
    """The part of config.json that describes the language model.

    Raises:
        ConfigError: see `check_model_folder`.
    """
    config = check_model_folder(folder)
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def dtype_of(config: EngineConfig, *, is_cpu: bool) -> str:
    """What the engine computes in."""
    if config.vllm.dtype != "auto":
        return config.vllm.dtype
    return "float32" if is_cpu else "bfloat16"


def transfer_of(config: EngineConfig, *, is_cpu: bool) -> str:
    """Name under which `plugin.py` registers how weights get in.

    Raises:
        ConfigError: "ipc" without a GPU.
    """
    kind = config.vllm.transfer
    if kind == "ipc" and is_cpu:
        raise ConfigError('engine.vllm.transfer="ipc" needs a GPU: set "file" or "auto"')
    if kind == "auto":
        kind = "file" if is_cpu else "ipc"
    return IPC_TRANSFER if kind == "ipc" else FILE_TRANSFER


def engine_arguments(
    folder: Path,
    config: EngineConfig,
    max_context_tokens: int,
    *,
    is_cpu: bool,
    lora: LoraConfig | None = None,
    returns_experts: bool = True,
    sleeps: bool = False,
) -> dict[str, Any]:
    """Keyword arguments of vLLM's `AsyncEngineArgs`.

    Args:
        folder: of the model.
        config: section engine.
        max_context_tokens: longest sequence.
        is_cpu: whether vLLM is the build for CPUs.
        lora: the adapter, when adapters alone go in; None: all weights.
        returns_experts: ask a mixture which experts it chose, where vLLM can say.
        sleeps: take a GPU's memory so that it can be given up for a while.

    Raises:
        ConfigError: the model does not fit the context, or this device.
    """
    model = text_config(folder)
    longest = model.get("max_position_embeddings")
    if isinstance(longest, int) and longest < max_context_tokens:
        raise ConfigError(
            f"model.max_context_tokens={max_context_tokens} is more than the {longest} positions "
            f"of {folder}: lower it"
        )
    # One more, so that a sequence of full length can be scored, where the model allows it.
    room = max_context_tokens + 1
    vllm = config.vllm
    arguments: dict[str, Any] = {
        "model": str(folder),
        # Ids in, ids out: no tokenizer, and no end-of-text but the stop ids of a request.
        "skip_tokenizer_init": True,
        # The folder's own sampling defaults (top-p and the like) would bias the ratio.
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "max_logprobs": -1,
        "dtype": dtype_of(config, is_cpu=is_cpu),
        "max_model_len": min(room, longest) if isinstance(longest, int) else room,
        "max_num_seqs": config.slots,
        "max_num_batched_tokens": max(config.prefill_tokens, config.slots),
        "scheduling_policy": "priority",
        # What is cached with an adapter is found with that one alone.
        "enable_prefix_caching": vllm.prefix_caching
        and (config.on_swap == "recompute" or lora is not None),
        "enforce_eager": is_cpu if vllm.eager is None else vllm.eager,
        "tensor_parallel_size": vllm.tensor_parallel,
        "distributed_executor_backend": "uni" if vllm.tensor_parallel == 1 else "mp",
        "disable_log_stats": True,
        "enable_log_requests": False,
    }
    if lora is None:
        arguments["weight_transfer_config"] = {"backend": transfer_of(config, is_cpu=is_cpu)}
    else:
        arguments |= adapter_arguments(lora, folder_shapes(folder))
    if is_cpu:
        # A prompt that is read in pieces ends vLLM's process there when its request has a seed
        # ("CPU Generator does not use offset"): each is read whole.
        arguments["enable_chunked_prefill"] = False
        arguments["max_num_batched_tokens"] = max(
            arguments["max_num_batched_tokens"], arguments["max_model_len"]
        )
    elif returns_experts and _is_mixture(model) and arguments["enable_prefix_caching"]:
        # Its model runner for CPUs cannot say, nor can the other one without cached prefixes.
        arguments["enable_return_routed_experts"] = True
    if sleeps and not is_cpu:
        arguments["enable_sleep_mode"] = True
    if vllm.kv_cache_bytes is not None:
        arguments["kv_cache_memory_bytes"] = vllm.kv_cache_bytes
    elif is_cpu:
        # Left alone, vLLM takes most of the machine's memory.
        arguments["kv_cache_memory_bytes"] = cache_bytes(folder, config, max_context_tokens)
    else:
        arguments["gpu_memory_utilization"] = vllm.gpu_memory_utilization
    return arguments


def _is_mixture(model: dict[str, Any]) -> bool:
    return any(model.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts"))


def cache_bytes(folder: Path, config: EngineConfig, max_context_tokens: int) -> int:
    """Memory for the keys and values of `engine.slots` whole sequences on a CPU.

    Raises:
        ConfigError: the attention on a CPU has no code for the model's head size.
    """
    model = text_config(folder)
    heads = int(model["num_attention_heads"])
    kv_heads = int(model.get("num_key_value_heads") or heads)
    head_size = int(model.get("head_dim") or int(model["hidden_size"]) // heads)
    if head_size not in CPU_HEAD_SIZES:
        raise ConfigError(
            f"{folder} has heads of size {head_size}, and vLLM's attention on a CPU knows "
            f'{", ".join(map(str, CPU_HEAD_SIZES))}: use another model, or engine.kind="builtin"'
        )
    blocks = -(-(max_context_tokens + 1) // CPU_BLOCK_TOKENS) * config.slots + 1
    entry = 2 * int(model["num_hidden_layers"]) * kv_heads * head_size
    item = _ITEM_BYTES[dtype_of(config, is_cpu=True)]
    return max(blocks * CPU_BLOCK_TOKENS * entry * item, _MIN_CACHE_BYTES)


def environment(config: EngineConfig, *, is_cpu: bool) -> dict[str, str]:
    """Environment of vLLM's processes, set before any is started."""
    found = {
        OURS: "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(int(config.vllm.start_s)),
        "OMP_NUM_THREADS": str(config.threads),
    }
    if is_cpu:
        if config.vllm.tensor_parallel == 1:
            # Or vLLM makes a worker process beside the engine's, which polls.
            found["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        if config.vllm.eager is not False:
            # "Eager" still compiles the ranking of log-probabilities at the first request: seconds.
            found["TORCHDYNAMO_DISABLE"] = "1"
    return found
