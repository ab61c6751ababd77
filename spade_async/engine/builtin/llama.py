"""Llama written out: the same weights as the Hugging Face module with a third of the operations.

With few requests the time of a decode step is the number of operations, not their size (about half
of the general path at 1 request, five sixths at 64, where memory is the limit). Query, key
and value weights are one matrix, and so are the gate and up weights of the MLP; the module's own
parameters become views of them, so a weight is in memory once and the general path stays usable.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spade_async.engine.builtin.cache import SlotCache, causal_mask
from spade_async.engine.builtin.parameters import Parameters

_STATIC_ROPE = {"default", "linear", "llama3", "yarn"}
"""Kinds of rotary embedding whose angles do not depend on the length of the sequence."""


class _Layer:
    """Weights of one block, named by what they do; shapes [out, in]."""

    def __init__(self, block: Any) -> None:
        attention, mlp = block.self_attn, block.mlp
        self.before_attention: Tensor = block.input_layernorm.weight
        self.query_key_value = _joined(attention.q_proj, attention.k_proj, attention.v_proj)
        self.attention_out: Tensor = attention.o_proj.weight
        self.before_mlp: Tensor = block.post_attention_layernorm.weight
        self.gate_up = _joined(mlp.gate_proj, mlp.up_proj)
        self.down: Tensor = mlp.down_proj.weight


class LlamaModel:
    """Fast path of `Model` for networks that `fits` accepts."""

    def __init__(self, network: Any, max_tokens: int) -> None:
        config = network.config
        self.network = network
        self.parameters = Parameters(network)
        self.vocabulary_size = int(config.vocab_size)
        self.chosen: Tensor | None = None
        self._heads = int(config.num_attention_heads)
        self._kv_heads = int(config.num_key_value_heads)
        self._head_dim = int(config.head_dim)
        self._eps = float(config.rms_norm_eps)
        self._embedding: Tensor = network.model.embed_tokens.weight
        self._head: Tensor = network.lm_head.weight
        self._final_norm: Tensor = network.model.norm.weight
        self._layers = [_Layer(block) for block in network.model.layers]
        cosine, sine = network.model.rotary_emb(
            torch.empty(0), torch.arange(max_tokens).unsqueeze(0)
        )
        # The sign of the rotated half goes into the table: rotate(x) = x * cos + swap(x) * sin.
        half = self._head_dim // 2
        self._cosine: Tensor = cosine[0]
        self._sine = torch.cat((-sine[0][:, :half], sine[0][:, half:]), dim=-1)

    @staticmethod
    def fits(network: nn.Module) -> bool:
        """Whether this is a plain Llama that the code here computes exactly."""
        config: Any = network.config
        return (
            type(network).__name__ == "LlamaForCausalLM"
            and config.hidden_act == "silu"
            and not config.attention_bias
            and not config.mlp_bias
            and config.rope_parameters["rope_type"] in _STATIC_ROPE
        )

    def new_cache(self, slots: int, max_tokens: int) -> SlotCache:
        """See `Model.new_cache`."""
        return SlotCache(len(self._layers), slots, self._kv_heads, self._head_dim, max_tokens)

    def forward(
        self, cache: SlotCache, first_row: int, ids: Tensor, positions: Tensor, last: Tensor
    ) -> Tensor:
        """See `Model.forward`."""
        rows, tokens = ids.shape
        longest = int(positions[:, -1].max()) + 1
        # From position 0 on, padding on the right needs no mask beyond the causal one.
        fresh = tokens == longest and tokens > 1
        mask = None if fresh else causal_mask(positions, longest)
        places = cache.places(first_row, positions)
        flat = positions.flatten()
        cosine = self._cosine[flat].unsqueeze(1)
        sine = self._sine[flat].unsqueeze(1)
        heads, kv_heads, size = self._heads, self._kv_heads, self._head_dim
        rotated = heads + kv_heads
        x = F.embedding(ids.flatten(), self._embedding)
        for index, layer in enumerate(self._layers):
            h = F.linear(self._norm(x, layer.before_attention), layer.query_key_value)
            h = h.view(rows * tokens, rotated + kv_heads, size)
            turned = self._rotate(h[:, :rotated], cosine, sine)
            entries = turned[:, heads:].flatten(0, 1), h[:, rotated:].flatten(0, 1)
            cache.write(index, places, *entries)
            keys, values = cache.read(index, first_row, rows, longest)
            attended = F.scaled_dot_product_attention(
                turned[:, :heads].view(rows, tokens, heads, size).transpose(1, 2),
                keys,
                values,
                attn_mask=mask,
                is_causal=fresh,
                enable_gqa=heads != kv_heads,
            )
            attended = attended.transpose(1, 2).reshape(rows * tokens, heads * size)
            x = torch.addmm(x, attended, layer.attention_out.t())
            gate, up = F.linear(self._norm(x, layer.before_mlp), layer.gate_up).chunk(2, dim=-1)
            x = torch.addmm(x, F.silu(gate).mul_(up), layer.down.t())
        if tokens > 1:
            x = x[torch.arange(0, rows * tokens, tokens) + last]
        return F.linear(self._norm(x, self._final_norm), self._head)

    def score(self, ids: Tensor) -> Tensor:
        """See `Model.score`; by the Hugging Face module, so that it attests the fast path."""
        logits: Tensor = self.network(input_ids=ids.unsqueeze(0), use_cache=False).logits[0]
        return logits

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self._eps)

    def _rotate(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Rotary embedding of [tokens, heads, head_dim]."""
        swapped = torch.roll(x, self._head_dim // 2, dims=-1)
        return torch.addcmul(x * cosine, swapped, sine)


def _joined(*linears: nn.Linear) -> Tensor:
    """One matrix of several linears' weights; their parameters become views of it."""
    matrix = torch.cat([linear.weight.data for linear in linears])
    start = 0
    for linear in linears:
        linear.weight.data = matrix[start : start + linear.out_features]
        start += linear.out_features
    return matrix
