"""What lies on each device at once, item by item.

Weights, gradients, moments and keys are counted from the shapes; activations by what autograd
keeps (`Architecture.saved_bytes_per_token`); what a library needs besides is a stated allowance.
Items are those of the code as it is: the copy that a refused update is undone from is one of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from spade_async.cluster.placement import Placement
from spade_async.config.schema import Config
from spade_async.config.size import in_units
from spade_async.planning.architecture import Architecture
from spade_async.planning.holding import Holding

FP32 = 4
CONTEXT_BYTES = 1 * 10**9
"""Allowance for CUDA's context and the allocator's rest, per process and GPU."""
ENGINE_BYTES = 3 * 10**9
"""Allowance for vLLM's own buffers and graphs on a GPU."""
PROCESS_BYTES = 600 * 10**6
"""Allowance for Python, torch and transformers in a process on the CPU."""
FIXED = "nothing here makes it smaller"
"""In place of a key."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something that takes memory."""

    name: str
    num_bytes: int
    knob: str
    """The key that makes it smaller."""
    turn: str = ""
    """Whose turn it is while it lies there, "generators" or "learner"; "": always."""


@dataclass(slots=True)
class Device:
    """One GPU, or the machine's memory."""

    name: str
    capacity: int
    """Bytes."""
    processes: list[str] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Bytes taken at once: of parts that take turns, by the larger one."""
        return sum(item.num_bytes for item in self._at_peak)

    @property
    def largest(self) -> Item:
        """The item that takes most of it."""
        return max(self._at_peak, key=lambda item: item.num_bytes)

    @property
    def _at_peak(self) -> list[Item]:
        turns: Counter[str] = Counter()
        for item in self.items:
            turns[item.turn] += item.num_bytes if item.turn else 0
        peak = max(turns, key=lambda turn: turns[turn], default="")
        return [item for item in self.items if item.turn in ("", peak)]

    @property
    def fits(self) -> bool:
        """Whether everything has room."""
        return self.total <= self.capacity

    def problem(self) -> str | None:
        """One line with the largest item and its key when it does not fit."""
        if self.fits:
            return None
        over = in_units(self.total - self.capacity)
        item = self.largest
        return (
            f"{self.name} holds {in_units(self.capacity)} and would need {in_units(self.total)}, "
            f"{over} too much; the largest item is {item.name} ({in_units(item.num_bytes)}): "
            f"{item.knob}"
        )


def devices(
    config: Config, shape: Architecture, placement: Placement, host_bytes: int
) -> list[Device]:
    """Every device with what lies on it; the machine's memory comes last.

    Raises:
        ConfigError: see `Holding.of`.
    """
    holding = Holding.of(config, shape)
    host = Device("host memory", host_bytes)
    found = [Device(f"GPU {n}", config.cluster.gpu_memory) for n in range(placement.gpus)]
    takes_turns = config.cluster.takes_turns and placement.is_shared
    for index, own in enumerate(placement.generators):
        name = f"gen-{index}"
        for device in [found[n] for n in own] or [host]:
            device.processes.append(name)
            device.items += _generator(config, holding, name, device if own else None)
        if own:
            host.processes.append(name)
            host.items.append(_process(name, 2 * len(own)))
        if own and takes_turns:
            size = holding.engine_weight_bytes
            host.items.append(Item(f"{name} weights while it sleeps", size, "take a smaller model"))
    for rank in range(config.learner.ranks):
        name = "learner" if config.learner.ranks == 1 else f"learner rank {rank}"
        device = found[placement.learner[rank]] if placement.learner else host
        device.processes.append(name)
        held, used = _learner(config, holding, name, is_gpu=bool(placement.learner))
        (host if config.learner.offload else device).items.extend(held)
        device.items += [replace(item, turn="learner" if takes_turns else "") for item in used]
        device.items.append(_rest(name, is_gpu=bool(placement.learner)))
        if placement.learner:
            host.processes.append(name)
            host.items.append(_process(name, 1))
        # Weights and moments as they were: on the host, wherever the learner is.
        undo = 3 * FP32 * holding.trained_weights // config.learner.ranks
        host.items.append(Item(f"{name} copy that undoes an update", undo, "take a smaller model"))
    _published(config, holding, host)
    host.processes.append("coordinator")
    host.items.append(Item("coordinator", PROCESS_BYTES // 4, FIXED))
    return [*found, host]


def jail_bytes(config: Config) -> int:
    """What the workers of the jail may take, all at their limit; they rarely do."""
    return config.sandbox.workers * config.sandbox.memory_bytes * config.generator.count


def _published(config: Config, holding: Holding, host: Device) -> None:
    """Weight sets on their way, in the machine's memory."""
    if config.learner.is_sharded:
        # Each rank reads a whole set before it is cut; the first gathers one to publish it.
        size = config.learner.ranks * FP32 * holding.held_weights
        host.items.append(Item("learner weights being loaded", size, "lower learner.ranks"))
    if config.weights.location == "shared_memory":
        size = (config.weights.keep + 1) * holding.published_bytes
        host.items.append(
            Item("published weights in /dev/shm", size, 'set weights.location="run_folder"')
        )


def _generator(config: Config, holding: Holding, name: str, gpu: Device | None) -> list[Item]:
    weights = Item(f"{name} weights", holding.engine_weight_bytes, "take a smaller model")
    slots, context = config.engine.slots, config.model.max_context_tokens
    full = slots * context * holding.kv_bytes_per_token
    settings = config.engine.vllm
    if gpu is not None:
        weights = Item(
            weights.name, weights.num_bytes, "raise engine.vllm.tensor_parallel (and cluster.gpus)"
        )
        kv, knob = settings.kv_cache_bytes, "lower engine.vllm.kv_cache_bytes"
        if kv is None:
            left = int(settings.gpu_memory_utilization * gpu.capacity) - weights.num_bytes
            kv, knob = max(0, left - ENGINE_BYTES), "lower engine.vllm.gpu_memory_utilization"
        turn = "generators" if config.cluster.takes_turns and config.cluster.gpus == 1 else ""
        items = [
            replace(weights, turn=turn),
            Item(f"{name} KV", kv, knob, turn),
            Item(f"{name} vLLM's buffers", ENGINE_BYTES, "set engine.vllm.eager=true"),
            Item(f"{name} CUDA context", CONTEXT_BYTES, FIXED),
        ]
        if settings.transfer != "file":
            staged = "weights that come in (whole, by CUDA IPC)"
            knob = 'set engine.vllm.transfer="file"'
            items.append(Item(f"{name} {staged}", holding.whole_engine_bytes, knob))
        return items
    if config.engine.kind == "vllm":
        kv = settings.kv_cache_bytes or full
        knob = "lower engine.vllm.kv_cache_bytes, engine.slots or model.max_context_tokens"
        return [weights, Item(f"{name} KV", kv, knob), _process(name, 2)]
    # A swap checks the new set beside the one in use; "finish" keeps a third.
    coming = 1 if config.async_.in_flight == "swap" else 2
    return [
        weights,
        Item(f"{name} weights that come in", coming * weights.num_bytes, "take a smaller model"),
        Item(f"{name} KV", full, "lower engine.slots or model.max_context_tokens"),
        _process(name, 1),
    ]


def _learner(
    config: Config, holding: Holding, name: str, *, is_gpu: bool
) -> tuple[list[Item], list[Item]]:
    """What it keeps between steps, and what a step takes."""
    learner = config.learner
    ranks, trained = learner.ranks, holding.trained_weights
    more = "raise learner.ranks" if is_gpu else "take a smaller model"
    if not learner.lora.rank:
        more += ", or train an adapter (learner.lora.rank)"
    if is_gpu and not learner.offload:
        more += ", or set learner.offload=true"
    if learner.activation_checkpointing:
        fewer = "lower learner.micro_batch_tokens"
    else:
        fewer = "set learner.activation_checkpointing=true or lower learner.micro_batch_tokens"
    held = [
        Item(f"{name} weights (fp32)", FP32 * holding.held_weights // ranks, more),
        Item(f"{name} gradients", FP32 * trained // ranks, more),
        Item(f"{name} optimizer", 2 * FP32 * trained // ranks, more),
    ]
    used = [
        Item(f"{name} activations", holding.activation_bytes, fewer),
        Item(f"{name} logits", holding.logit_bytes, FIXED),
    ]
    if holding.gathered_bytes:
        gathered = Item(f"{name} gathered weights", holding.gathered_bytes, "take a smaller model")
        used.append(gathered)
    if learner.kl_to_start > 0 and not learner.lora.rank:
        size = FP32 * holding.held_weights // ranks
        held.append(Item(f"{name} start model", size, "set learner.kl_to_start=0"))
    return held, used


def _rest(name: str, *, is_gpu: bool) -> Item:
    return Item(f"{name} CUDA context", CONTEXT_BYTES, FIXED) if is_gpu else _process(name, 1)


def _process(name: str, count: int) -> Item:
    knob = "lower generator.count" if name.startswith("gen-") else FIXED
    return Item(f"{name} Python and torch", count * PROCESS_BYTES, knob)
