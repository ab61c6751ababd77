"""How one network is held by a configuration: bytes of its weights, keys and passes per process."""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.config.schema import Config
from spade_async.errors import ConfigError
from spade_async.planning.architecture import Architecture

FP32 = 4
CHUNK_LOGITS = 1 << 24
"""`grpo.chunked.CHUNK_LOGITS`: most logits at once."""
LOGIT_COPIES = 4
"""A chunk of logits in fp32 with the three copies that its backward pass holds."""

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Sizes in bytes, of one process unless it says otherwise."""

    engine_weight_bytes: int
    """Of a generator, on each of its devices."""
    whole_engine_bytes: int
    """Of a whole weight set in the engine's precision."""
    kv_bytes_per_token: int
    """Keys and values of one position, on each device of a generator."""
    held_weights: int
    """Numbers that the learner holds, over all ranks."""
    trained_weights: int
    """Of these, the ones that are trained."""
    activation_bytes: int
    """Of one micro-batch, on each rank."""
    logit_bytes: int
    """Of one chunk through the head."""
    gathered_bytes: int
    """Weights that are gathered for a pass, on each rank; 0 when nothing is cut."""
    published_bytes: int
    """Of one published weight set."""
    checkpoint_bytes: int
    """Of one checkpoint: weights and moments."""

    @classmethod
    def of(cls, config: Config, shape: Architecture) -> Holding:
        """The sizes of this configuration.

        Raises:
            ConfigError: the network does not divide over the GPUs of one engine.
        """
        learner, rank = config.learner, config.learner.lora.rank
        width = config.engine.vllm.tensor_parallel
        if shape.heads % width:
            raise ConfigError(
                f"engine.vllm.tensor_parallel={width} does not divide the {shape.heads} heads of "
                f"{shape.name}: set a divisor"
            )
        number = _engine_number_bytes(config)
        adapter = shape.lora_weights(rank) if rank else 0
        trained = adapter or shape.num_weights
        passes = _BYTES[learner.dtype]
        # An engine with more devices than heads of keys keeps copies of them.
        kv_parts = min(width, shape.kv_heads)
        # vLLM gets the precision of the passes, and an adapter alone where it can.
        of_number = _BYTES[learner.dtype] if config.engine.kind == "vllm" else FP32
        pushes_adapter = learner.lora.pushes_adapter
        published = of_number * (adapter if pushes_adapter else shape.num_weights)
        return cls(
            engine_weight_bytes=number * shape.num_weights // width,
            whole_engine_bytes=number * shape.num_weights,
            kv_bytes_per_token=number * shape.kv_numbers_per_token // kv_parts,
            held_weights=shape.num_weights + adapter,
            trained_weights=trained,
            activation_bytes=_activations(config, shape, passes),
            logit_bytes=LOGIT_COPIES
            * FP32
            * min(CHUNK_LOGITS, learner.micro_batch_tokens * shape.vocabulary),
            gathered_bytes=_gathered(config, shape, passes),
            published_bytes=published,
            checkpoint_bytes=FP32 * (shape.num_weights + 2 * trained),
        )


def _engine_number_bytes(config: Config) -> int:
    """Bytes of one number in the engine."""
    if config.engine.kind != "vllm":
        return FP32
    dtype = config.engine.vllm.dtype
    if dtype == "auto":
        return 2 if config.cluster.gpus else FP32
    return _BYTES[dtype]


def _activations(config: Config, shape: Architecture, number_bytes: int) -> int:
    # A sample that is longer than the budget is a micro-batch of its own.
    tokens = max(config.learner.micro_batch_tokens, config.model.max_context_tokens)
    layer = shape.saved_bytes_per_token(number_bytes)
    if config.learner.activation_checkpointing:
        # The inputs of all layers, and one layer computed again.
        return tokens * (shape.layers * number_bytes * shape.hidden + layer)
    return tokens * shape.layers * layer


def _gathered(config: Config, shape: Architecture, number_bytes: int) -> int:
    """FSDP2 gathers two layers (one in advance); embedding and head stay gathered for a pass.

    Gradients of what is gathered exist whole, in the precision of the passes, before they are cut.
    """
    if not config.learner.is_sharded:
        return 0
    gathered = 2 * shape.layer_weights + shape.embedding_weights
    gradients = 0 if config.learner.lora.rank else gathered
    return number_bytes * (gathered + gradients)
