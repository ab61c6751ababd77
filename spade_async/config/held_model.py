"""How the learner holds its model: precision, device, attention, ranks, adapter."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from spade_async.config.section import Section

LARGEST_PUSHED_RANK = 512
"""vLLM takes no adapter of a higher rank."""


class LoraConfig(Section):
    """A low-rank adapter in place of all weights (`learner.lora`); needs the extra "lora"."""

    rank: int = Field(0, ge=0, le=4096)
    """Rank of the adapter's matrices; 0 trains all weights."""
    alpha: float = Field(32.0, gt=0.0, le=65_536.0)
    """The adapter's output is multiplied by alpha / rank."""
    targets: tuple[str, ...] = Field(("all-linear",), min_length=1, max_length=64)
    """Ends of the names of the linear layers that get one, or "all-linear"."""
    push: Literal["merged", "adapter"] = "merged"
    """What the generators get each step: all weights with the adapter merged into them, or the
    adapter alone: engine.kind="vllm", rank 512 at most, no adapter of the head, and no mixture of
    experts on a CPU."""

    @property
    def pushes_adapter(self) -> bool:
        """Whether the adapter alone is published."""
        return self.rank > 0 and self.push == "adapter"


class HeldModel(Section):
    """Keys of `[learner]` that say how its model lies in memory; they change no formula."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the passes. With "bfloat16" the master weights, gradients and moments stay float32, and
    the generators get bfloat16 weights."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the model is; each rank takes the device of its number."""
    attention: Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"] = "sdpa"
    """Implementation of attention in transformers; the last two need a GPU and their package."""
    activation_checkpointing: bool = False
    """Keep the inputs of each layer alone and compute the layer again in the backward pass: less
    memory for a third more work."""
    offload: bool = False
    """Keep weights, gradients and moments on the host, where the optimizer then works; a pass takes
    them to the device a layer at a time (FSDP2). Slower; the device is empty between steps. With
    device "cpu" nothing changes."""
    ranks: int = Field(1, ge=1, le=1024)
    """Processes of the learner, which share the weights among them (FSDP2 under torchrun)."""
    lora: LoraConfig = LoraConfig()
    """Train an adapter instead of all weights."""

    @property
    def is_sharded(self) -> bool:
        """Whether FSDP2 holds the weights: several ranks, another precision, or the host."""
        return self.ranks > 1 or self.dtype != "float32" or self.offload

    @property
    def first_device(self) -> str:
        """Where weights go when they are loaded: those that are cut leave the host by layers."""
        return "cpu" if self.is_sharded else self.device


def held_problem(held: HeldModel, has_critic: bool, engine_kind: str) -> str | None:
    """What cannot go together with how the model is held, or None.

    Args:
        held: section learner.
        has_critic: `learner.critic.enabled`.
        engine_kind: `engine.kind`.
    """
    if held.lora.push == "adapter":
        problem = push_problem(held.lora, engine_kind)
        if problem is not None:
            return f'learner.lora.push="adapter" {problem}'
    if held.attention.startswith("flash") and (held.device, held.dtype) != ("cuda", "bfloat16"):
        return (
            f'learner.attention="{held.attention}" needs learner.device="cuda" and learner.dtype='
            f'"bfloat16", and they are "{held.device}" and "{held.dtype}": use "sdpa"'
        )
    if has_critic and (held.is_sharded or held.device != "cpu"):
        return (
            "learner.critic.enabled=true reads whole float32 weights on the CPU, but learner.ranks="
            f'{held.ranks}, learner.dtype="{held.dtype}", learner.device="{held.device}": leave '
            "one of the two out"
        )
    return None


def push_problem(lora: LoraConfig, engine_kind: str) -> str | None:
    """Why adapters alone cannot be pushed, or None."""
    if not lora.rank:
        return "and learner.lora.rank=0: there is no adapter; set a rank"
    if engine_kind != "vllm":
        return (
            f'needs engine.kind="vllm", and it is "{engine_kind}", which takes whole weights: '
            'set learner.lora.push="merged"'
        )
    if lora.rank > LARGEST_PUSHED_RANK:
        return (
            f"and learner.lora.rank={lora.rank}: vLLM takes adapters up to rank "
            f'{LARGEST_PUSHED_RANK}; lower it, or set learner.lora.push="merged"'
        )
    if any(target.endswith("lm_head") for target in lora.targets):
        return (
            'and "lm_head" in learner.lora.targets: vLLM scores no prompt with an adapter of the '
            'head; leave it out, or set learner.lora.push="merged"'
        )
    return None
