"""The repeated blocks of a language model, and computing them again in the backward pass."""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from spade_async.errors import WeightsError


def repeated_layers(model: PreTrainedModel) -> nn.ModuleList:
    """The decoder's blocks: of all lists of like modules the one with the most weights.

    Raises:
        WeightsError: the model has no list of like modules.
    """
    lists = [
        module
        for module in model.modules()
        if isinstance(module, nn.ModuleList) and len({type(m) for m in module}) == 1
    ]
    if not lists:
        raise WeightsError(
            f"{type(model).__name__} has no list of like layers: learner.activation_checkpointing "
            "and learner.ranks above 1 or learner.dtype=bfloat16 cannot cut it"
        )
    return max(lists, key=lambda found: sum(p.numel() for p in found.parameters()))


def recompute_layers(model: PreTrainedModel) -> None:
    """Have every layer keep its input alone and run again in the backward pass.

    Names of weights stay as they are. The switch of transformers is not used: it works in training
    mode only, where dropout would act.
    """
    for layer in repeated_layers(model):
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
