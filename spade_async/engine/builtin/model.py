"""The general path: any Hugging Face causal LM with full attention, on a slot cache.

`Model` is what the decoder asks of a network; `HuggingFaceModel` is the general answer and
`llama.LlamaModel` a faster one for one architecture.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from spade_async.engine.builtin.cache import SlotCache, causal_mask
from spade_async.engine.builtin.parameters import Parameters
from spade_async.engine.offline import check_model_folder, stay_offline
from spade_async.engine.routes import router_modules
from spade_async.errors import ConfigError


class Model(Protocol):
    """A network that reads and writes a `SlotCache`."""

    parameters: Parameters
    vocabulary_size: int
    chosen: Tensor | None
    """[rows, tokens, routers, k] experts that the last `forward` went through; None without any."""

    def new_cache(self, slots: int, max_tokens: int) -> SlotCache:
        """An empty cache of the right shape."""

    def forward(
        self, cache: SlotCache, first_row: int, ids: Tensor, positions: Tensor, last: Tensor
    ) -> Tensor:
        """Read tokens into consecutive rows of the cache.

        Args:
            cache: holds the entries of all positions before `positions` of these rows.
            first_row: row of the first line of `ids`.
            ids: [rows, tokens], padded on the right with anything.
            positions: [rows, tokens], consecutive in each row, padding included.
            last: [rows], index of the token whose next-token logits are wanted.

        Returns:
            Logits [rows, vocabulary], fp32.
        """

    def score(self, ids: Tensor) -> Tensor:
        """Logits [tokens, vocabulary] of a whole sequence [tokens], without the cache."""


class HuggingFaceModel:
    """The general path through `transformers`."""

    def __init__(self, network: nn.Module, *, notes_experts: bool = True) -> None:
        config: Any = network.config
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        self.network = network
        self.parameters = Parameters(network)
        self.vocabulary_size = int(text.vocab_size)
        self._layers = int(text.num_hidden_layers)
        heads = int(text.num_attention_heads)
        self._kv_heads = int(getattr(text, "num_key_value_heads", None) or heads)
        self._head_dim = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
        self._selects = "logits_to_keep" in inspect.signature(network.forward).parameters
        self.chosen: Tensor | None = None
        self._choices: list[Tensor] = []
        """[rows * tokens, k] of each router in the present pass."""
        for module in router_modules(network) if notes_experts else ():
            module.register_forward_hook(self._note_choice)

    def _note_choice(self, module: Any, inputs: Any, output: Any) -> None:
        self._choices.append(output[2])

    def new_cache(self, slots: int, max_tokens: int) -> SlotCache:
        """See `Model.new_cache`."""
        return SlotCache(self._layers, slots, self._kv_heads, self._head_dim, max_tokens)

    def forward(
        self, cache: SlotCache, first_row: int, ids: Tensor, positions: Tensor, last: Tensor
    ) -> Tensor:
        """See `Model.forward`."""
        from spade_async.engine.builtin.adapter import RowsOfCache

        rows, tokens = ids.shape
        self._choices.clear()
        longest = int(positions[:, -1].max()) + 1
        arguments: dict[str, Any] = {}
        wanted = last
        if self._selects and tokens > 1:
            # The head is computed only at positions that some row wants.
            kept, wanted = torch.unique(last, return_inverse=True)
            arguments["logits_to_keep"] = kept
        output = self.network(
            input_ids=ids,
            position_ids=positions,
            attention_mask=causal_mask(positions, longest),
            past_key_values=RowsOfCache(cache, first_row, positions, longest),
            use_cache=True,
            **arguments,
        )
        if self._choices:
            self.chosen = torch.stack(self._choices, dim=1).view(
                rows, tokens, len(self._choices), -1
            )
        logits: Tensor = output.logits[torch.arange(rows), wanted]
        return logits.float()

    def score(self, ids: Tensor) -> Tensor:
        """See `Model.score`."""
        logits: Tensor = self.network(input_ids=ids.unsqueeze(0), use_cache=False).logits[0]
        return logits.float()


def open_model(
    folder: Path, max_context_tokens: int, *, general: bool = False, notes_experts: bool = True
) -> Model:
    """Load a model folder in fp32 on the CPU, on the fastest path that fits it.

    Args:
        folder: a Hugging Face model folder.
        max_context_tokens: longest sequence; a shorter attention window is refused.
        general: keep to the general path (tests, doubts).
        notes_experts: see `Model.chosen`.

    Raises:
        ConfigError: the folder is missing or damaged, or the architecture is not supported.
    """
    check_model_folder(folder)
    stay_offline()
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    quiet: Any = transformers_logging
    quiet.disable_progress_bar()
    try:
        network = AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=torch.float32, local_files_only=True, attn_implementation="sdpa"
        )
    except Exception as cause:
        raise ConfigError(
            f"model folder {folder} cannot be loaded ({type(cause).__name__}: {cause}): "
            "make or copy the model again"
        ) from cause
    network.train(False)
    network.requires_grad_(False)
    _check_attention(folder, network.config, max_context_tokens)
    if not general:
        from spade_async.engine.builtin.llama import LlamaModel

        if LlamaModel.fits(network):
            return LlamaModel(network, max_context_tokens)
    return HuggingFaceModel(network, notes_experts=notes_experts)


def _check_attention(folder: Path, config: Any, max_context_tokens: int) -> None:
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    windowed = window is not None and window < max_context_tokens
    if "sliding_attention" not in kinds and kinds:
        windowed = False
    if windowed or kinds - {"full_attention", "sliding_attention"}:
        raise ConfigError(
            f'{folder} ({config.model_type}) has attention layers that engine.kind="builtin" '
            f"does not run at model.max_context_tokens={max_context_tokens} (window {window}, "
            f'layers {sorted(kinds)}): use a model with full attention, or engine.kind="vllm"'
        )
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and longest < max_context_tokens:
        raise ConfigError(
            f"model.max_context_tokens={max_context_tokens} is more than the {longest} positions "
            f"of {folder}: lower it"
        )
