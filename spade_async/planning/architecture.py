"""Shapes of a causal LM from its config.json: how many weights, keys and values, how big a pass.

Counted by formula, for Llama, Qwen2, Qwen3 and Qwen3-MoE, so that nothing heavy is imported. Tests
hold the counts against the networks themselves on torch's meta device.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade_async.config.schema import Config
from spade_async.errors import ConfigError

SHAPES = Path(__file__).parent / "shapes"
KNOWN = ("llama", "qwen2", "qwen3", "qwen3_moe")


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Sizes of one network. A weight is a number; bytes are the caller's matter."""

    name: str
    kind: str
    """`model_type`."""
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    """Of the MLP of a dense layer, or of one expert."""
    experts: int
    """Per layer; 0 for a dense network."""
    experts_used: int
    """By one token; 1 stands for the one MLP of a dense layer."""
    vocabulary: int
    is_tied: bool
    """Whether embedding and head are one matrix."""
    has_qkv_bias: bool
    max_positions: int

    @property
    def norm_weights(self) -> bool:
        """Whether queries and keys are normalised (Qwen3)."""
        return self.kind.startswith("qwen3")

    @property
    def embedding_weights(self) -> int:
        """Of the embedding, and of the head where it is a matrix of its own."""
        return self.vocabulary * self.hidden * (1 if self.is_tied else 2)

    @property
    def attention_weights(self) -> int:
        """Of one layer's attention with its norms."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        found = self.hidden * (2 * queries + 2 * keys) + 2 * self.hidden
        if self.has_qkv_bias:
            found += queries + 2 * keys
        if self.norm_weights:
            found += 2 * self.head_dim
        return found

    @property
    def expert_weights(self) -> int:
        """Of one expert, or of the one MLP."""
        return 3 * self.hidden * self.intermediate

    @property
    def layer_weights(self) -> int:
        """Of one layer."""
        mlps = self.expert_weights * max(1, self.experts)
        return self.attention_weights + mlps + self.hidden * self.experts

    @property
    def num_weights(self) -> int:
        """Of the network; tied ones once."""
        return self.embedding_weights + self.layers * self.layer_weights + self.hidden

    @property
    def num_active(self) -> int:
        """Weights that one token passes through, the embedding's row not counted as a matrix."""
        router = self.hidden * self.experts
        layer = self.attention_weights + self.experts_used * self.expert_weights + router
        return self.vocabulary * self.hidden + self.layers * layer + self.hidden

    @property
    def kv_numbers_per_token(self) -> int:
        """Keys and values of one position."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def lora_weights(self, rank: int) -> int:
        """Of adapters of that rank on every linear layer but the head; experts are not adapted."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        ends = 2 * (self.hidden + queries) + 2 * (self.hidden + keys)
        if not self.experts:
            ends += 3 * (self.hidden + self.intermediate)
        return rank * ends * self.layers

    def saved_bytes_per_token(self, number_bytes: int) -> int:
        """What one layer keeps of one token for its backward pass.

        Counted on the networks of transformers (5.16 to 5.19) with fused attention; a norm keeps a
        copy in fp32, whatever the precision.
        """
        s = number_bytes
        of_head = 3 * s + 4 if self.norm_weights else 2 * s
        attention = (self.heads + self.kv_heads) * self.head_dim * of_head
        mlp = 4 * s * self.intermediate
        if self.experts:
            mlp = self.experts_used * (mlp + 2 * s * self.hidden)
        return self.hidden * (4 * s + 8) + attention + mlp


def architecture(settings: dict[str, Any], name: str) -> Architecture:
    """From the contents of a config.json.

    Raises:
        ConfigError: another kind of network, or a number is missing.
    """
    kind = str(settings.get("model_type"))
    if kind not in KNOWN:
        raise ConfigError(
            f"{name}: model_type={kind!r} is not one whose memory can be worked out "
            f"({', '.join(KNOWN)}); the run itself does not need this"
        )
    try:
        heads = int(settings["num_attention_heads"])
        hidden = int(settings["hidden_size"])
        experts = int(settings.get("num_experts") or 0) if kind == "qwen3_moe" else 0
        key = "moe_intermediate_size" if experts else "intermediate_size"
        has_bias = kind == "qwen2" or bool(settings.get("attention_bias"))
        return Architecture(
            name=name,
            kind=kind,
            hidden=hidden,
            layers=int(settings["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(settings.get("num_key_value_heads") or heads),
            head_dim=int(settings.get("head_dim") or hidden // heads),
            intermediate=int(settings[key]),
            experts=experts,
            experts_used=int(settings["num_experts_per_tok"]) if experts else 1,
            vocabulary=int(settings["vocab_size"]),
            is_tied=bool(settings.get("tie_word_embeddings", False)),
            has_qkv_bias=has_bias,
            max_positions=int(settings.get("max_position_embeddings") or 0),
        )
    except KeyError as missing:
        raise ConfigError(f"{name}: config.json lacks {missing}") from None
    except (TypeError, ValueError, ZeroDivisionError) as cause:
        raise ConfigError(f"{name}: config.json has a number that is none ({cause})") from None


def known_names() -> list[str]:
    """Models whose shapes are built in."""
    return sorted(path.stem for path in SHAPES.glob("*.json"))


def known_settings(path: str) -> dict[str, Any] | None:
    """The built-in config.json of a model by the last part of its path; None when unknown."""
    file = SHAPES / f"{Path(path).name.lower()}.json"
    if not file.is_file():
        return None
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def architecture_of(config: Config) -> Architecture:
    """Of `model.path`: a folder's own config.json, else the built-in shape of that name.

    Raises:
        ConfigError: neither is there.
    """
    path = Path(config.model.path)
    if path.is_dir():
        try:
            settings = json.loads((path / "config.json").read_text())
        except (OSError, ValueError) as cause:
            raise ConfigError(
                f"model.path={str(path)!r}: config.json cannot be read ({cause})"
            ) from None
        if not isinstance(settings, dict):
            raise ConfigError(f"model.path={str(path)!r}: config.json is no table")
    else:
        found = known_settings(config.model.path)
        if found is None:
            raise ConfigError(
                f"model.path={config.model.path!r}: no such folder, and its shape is not built in "
                f"({', '.join(known_names())}): name a model folder"
            )
        settings = found
    return architecture(settings, path.name)
