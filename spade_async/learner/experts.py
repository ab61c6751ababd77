"""Routers of a mixture of experts: how even their load is, and which experts a sampler chose.

A router whose two best experts are nearly equal may choose otherwise in the engine than in the
learner, and a token is then trained through weights that did not write it. Where the engine says
which experts it chose (`MicroBatch.experts`), the learner goes through the same ones; their weights
in the sum are its own, with a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spade_async.engine.routes import router_modules
from spade_async.grpo.batch import MicroBatch
from spade_async.types import NO_EXPERT


class Load:
    """How often each expert of each layer was chosen over a step's tokens, padding left out."""

    def __init__(self, layers: int, experts: int) -> None:
        """Start at zero."""
        self.chosen_LE: NDArray[np.float64] = np.zeros((layers, experts))
        """Times a token went through the expert."""
        self.probability_LE: NDArray[np.float64] = np.zeros((layers, experts))
        """Sum over the tokens of the router's probability."""
        self.tokens = 0.0
        self.given = 0.0
        """Choices of the engine that were followed, over all tokens and layers."""
        self.changed = 0.0
        """Those among them that the learner's own router would not have made."""

    def metrics(self) -> dict[str, float]:
        """Tags; none when no token was counted."""
        if not self.tokens:
            return {}
        experts = self.chosen_LE.shape[1]
        share_LE = self.chosen_LE / self.chosen_LE.sum(axis=1, keepdims=True)
        balance_L = experts * (share_LE * self.probability_LE / self.tokens).sum(axis=1)
        found = {
            "learner/experts_balance": float(balance_L.mean()),
            "learner/experts_max_load": float((share_LE.max(axis=1) * experts).mean()),
            "learner/experts_idle_share": float((self.chosen_LE == 0).mean()),
            "learner/experts_replayed_share": self.given / float(self.chosen_LE.sum()),
        }
        if self.given:
            found["learner/experts_changed_share"] = self.changed / self.given
        return found


class Routers:
    """The routers of one model, listened to; empty for a model without experts."""

    def __init__(self, model: nn.Module) -> None:
        """Find them and listen."""
        self.modules: list[nn.Module] = router_modules(model)
        self._experts_RLMk: Tensor | None = None
        self._load: Load | None = None
        self._mask: Tensor | None = None
        for layer, module in enumerate(self.modules):
            module.register_forward_hook(_Hook(self, layer))

    def __len__(self) -> int:
        return len(self.modules)

    def new_load(self) -> Load | None:
        """An empty count for these routers; None without any."""
        if not self.modules:
            return None
        first: Any = self.modules[0]
        return Load(len(self.modules), int(first.weight.shape[0]))

    @contextmanager
    def during(self, micro: MicroBatch, load: Load | None) -> Iterator[None]:
        """Count into `load` inside the block, and follow `micro.experts` until the next one.

        Longer than the block on purpose: a layer that is computed again in the backward pass must
        choose the same.

        Raises:
            ValueError: the engine's model has other routers or experts than this one.
        """
        if micro.experts is not None:
            self._check(micro.experts)
        self._experts_RLMk = micro.experts
        self._load, self._mask = load, micro.attention_mask_RL
        if load is not None:
            load.tokens += float(micro.attention_mask_RL.sum())
        try:
            yield
        finally:
            self._load = None

    def _check(self, experts_RLMk: Tensor) -> None:
        first: Any = self.modules[0] if self.modules else None
        experts = 0 if first is None else int(first.weight.shape[0])
        shape = (len(self.modules), 0 if first is None else int(first.top_k))
        if tuple(experts_RLMk.shape[2:]) != shape or int(experts_RLMk.max()) >= experts:
            raise ValueError(
                f"the engine says (routers, k) = {tuple(experts_RLMk.shape[2:])} with expert "
                f"{int(experts_RLMk.max())}, and the learner's model has {shape} of {experts} "
                "experts: generators and learner need the same model folder"
            )

    def after(self, layer: int, module: Any, output: Any) -> Any:
        """What a router gives in place of `output`, of ([T, E], [T, k], [T, k]) with T = R x L."""
        logits, weights, indices = output
        if self._experts_RLMk is not None:
            given = self._experts_RLMk[:, :, layer].reshape(-1, indices.shape[1]).to(indices.dtype)
            if self._load is not None and self._mask is not None:
                _count_given(self._load, given, indices, self._mask.flatten().bool())
            indices = torch.where(given == NO_EXPERT, indices, given)
            weights = gate_weights(module, logits, indices).to(weights.dtype)
        if self._load is not None and self._mask is not None:
            _count(self._load, layer, logits.detach(), indices, self._mask.flatten().bool())
        return logits, weights, indices


class _Hook:
    """Calls `Routers.after` for one layer."""

    def __init__(self, routers: Routers, layer: int) -> None:
        self._routers = routers
        self._layer = layer

    def __call__(self, module: Any, inputs: Any, output: Any) -> Any:
        return self._routers.after(self._layer, module, output)


def gate_weights(module: Any, logits: Tensor, indices: Tensor) -> Tensor:
    """[T, k] weights of the chosen experts by the rule of Qwen3-MoE and Mixtral.

    A softmax over all experts, and unless `norm_topk_prob` is false their sum made 1.
    """
    chosen = torch.softmax(logits.float(), dim=-1).gather(1, indices)
    if getattr(module, "norm_topk_prob", True):
        chosen = chosen / chosen.sum(dim=-1, keepdim=True)
    return chosen


def _count_given(load: Load, given: Tensor, own: Tensor, is_real: Tensor) -> None:
    is_given = (given != NO_EXPERT) & is_real[:, None]
    is_own = (given[:, :, None] == own[:, None, :]).any(dim=-1)
    load.given += float(is_given.sum())
    load.changed += float((is_given & ~is_own).sum())


def _count(load: Load, layer: int, logits: Tensor, indices: Tensor, is_real: Tensor) -> None:
    experts = logits.shape[1]
    chosen = torch.bincount(indices[is_real].flatten(), minlength=experts)
    load.chosen_LE[layer] += chosen.double().cpu().numpy()
    probability = torch.softmax(logits[is_real].float(), dim=-1).sum(dim=0)
    load.probability_LE[layer] += probability.double().cpu().numpy()
