"""Weights cut over the ranks (FSDP2), gathered a layer at a time while they are used.

Each rank holds a slice of every weight, its gradient and its moments, cut along the first
dimension. A layer's weights are gathered for its pass and dropped after it, in bfloat16 when
`learner.dtype` says so: the masters stay float32, and gradients are summed in float32. One rank
with bfloat16 passes is the same code with whole slices.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from spade_async.config.held_model import HeldModel
from spade_async.learner.layers import repeated_layers
from spade_async.learner.ranks import join


def shard(scorer: nn.Module, model: PreTrainedModel, config: HeldModel) -> None:
    """Cut the weights of `model`, in place, so that `scorer` can be called.

    Args:
        scorer: the module that is called; it contains the model.
        model: the same weights on every rank.
        config: dtype, device, offload.
    """
    world = join(config.device).world
    mesh = init_device_mesh(config.device, (world,))
    policy = MixedPrecisionPolicy()
    if config.dtype == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    # With device "cpu" all of it is on the host already.
    leaves_device = config.offload and config.device == "cuda"
    offload = CPUOffloadPolicy() if leaves_device else OffloadPolicy()
    for layer in repeated_layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy, offload_policy=offload)
    # Embedding and head stay gathered from the forward to the backward pass: both ends use them.
    fully_shard(
        scorer, mesh=mesh, mp_policy=policy, offload_policy=offload, reshard_after_forward=False
    )


def whole(tensor: Tensor) -> Tensor:
    """The tensor with all its slices; every rank has to ask. An uncut one as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own(tensor: Tensor) -> Tensor:
    """This rank's slice, sharing memory; an uncut one as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def first_row(tensor: Tensor) -> int:
    """Where this rank's slice begins in the whole tensor; 0 for an uncut one."""
    if not isinstance(tensor, DTensor):
        return 0
    # FSDP2 cuts as `torch.chunk` does: equal slices but for the last ones.
    world, rows = tensor.device_mesh.size(), tensor.shape[0]
    return min(rows, -(-rows // world) * tensor.device_mesh.get_local_rank())


@torch.no_grad()
def set_whole(target: Tensor, tensor: Tensor) -> None:
    """Set a weight, or this rank's slice of it, from the uncut tensor."""
    mine = own(target)
    if isinstance(target, DTensor):
        begin = first_row(target)
        tensor = tensor[begin : begin + mine.shape[0]]
    mine.copy_(tensor)
