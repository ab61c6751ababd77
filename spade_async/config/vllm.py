"""`engine.vllm.*`: how vLLM is run (docs/vllm.md), and what cannot go together with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from spade_async.config.section import Section
from spade_async.config.size import Size

LOWEST_TEMPERATURE = 0.01
"""vLLM raises temperatures between 0 and this one silently."""


class VllmConfig(Section):
    """vLLM, for engine.kind="vllm"; see docs/vllm.md."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """What it computes in; "auto" is float32 on a CPU and bfloat16 on a GPU."""
    kv_cache_bytes: Annotated[Size, Field(ge=1 << 20, le=1 << 44)] | None = None
    """Memory for keys and values. Not set: on a CPU what engine.slots sequences of
    model.max_context_tokens need, on a GPU what `gpu_memory_utilization` leaves."""
    gpu_memory_utilization: float = Field(0.85, gt=0.0, le=1.0)
    """Share of a GPU's memory that vLLM takes; nothing on a CPU."""
    tensor_parallel: int = Field(1, ge=1, le=64)
    """Devices that one engine is spread over."""
    eager: bool | None = None
    """No compilation and no CUDA graphs. Not set: so on a CPU (starts 80 s earlier), not on a GPU.
    """
    prefix_caching: bool = True
    """Prompts share what they have in common, in whole blocks (128 tokens on a CPU). Emptied at
    each swap; off with engine.on_swap="keep"."""
    transfer: Literal["auto", "file", "ipc"] = "auto"
    """How weights get in: read from their file in shared memory, or staged on the GPU first and
    handed over by CUDA IPC. "auto" is "ipc" on a GPU and "file" on a CPU."""
    start_s: float = Field(600.0, ge=5.0, le=86_400.0)
    """Longest start of the engine's processes."""
    update_tries: int = Field(3, ge=1, le=100)
    """Tries of one weight update, each of all weights, before the engine is started anew."""
    max_restarts: int = Field(3, ge=0, le=1000)
    """Deaths of the engine's processes, without a finished request between, that are answered by a
    restart; one more ends the generator."""


def vllm_problem(
    kind: str, section: VllmConfig, in_flight: str, temperatures: Mapping[str, float]
) -> str | None:
    """What contradicts `engine.kind`, or None.

    Args:
        kind: engine.kind.
        section: engine.vllm.
        in_flight: async.in_flight.
        temperatures: dotted key -> value of everything that is sampled.
    """
    if kind != "vllm":
        changed = [name for name, value in section if value != getattr(VllmConfig(), name)]
        if not changed:
            return None
        return (
            f'engine.vllm.{changed[0]} is set but engine.kind="{kind}": the section [engine.vllm] '
            'is for engine.kind="vllm"'
        )
    if in_flight == "finish":
        return (
            'async.in_flight="finish" keeps two weight sets in an engine, which engine.kind="vllm" '
            'cannot: set async.in_flight="swap", or engine.kind="builtin"'
        )
    for key, value in temperatures.items():
        if 0.0 < value < LOWEST_TEMPERATURE:
            return (
                f'{key}={value}: engine.kind="vllm" would sample at {LOWEST_TEMPERATURE} instead; '
                f"set 0 (greedy) or at least {LOWEST_TEMPERATURE}"
            )
    return None
