"""Brings a weight set into vLLM's process from the file that `staged.py` holds open.

Runs inside vLLM (its worker), named by `plugin.py`. The file is mapped, not read: what the loader
copies comes from shared memory. vLLM's layerwise reload brings each tensor into the form that its
kernels want.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
    layerwise,
)


@dataclass
class FileInitInfo(WeightTransferInitInfo):
    """Nothing has to be agreed on."""


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):
    """Which file, and what tells it from any other."""

    path: str
    inode: int
    num_bytes: int
    names: dict[str, str]
    """Name that the model's loader knows -> name in the file."""


class FileTransfer(WeightTransferEngine[FileInitInfo, FileUpdateInfo]):
    """vLLM's `WeightTransferEngine` over a `weights.store.WeightStore`."""

    init_info_cls = FileInitInfo
    update_info_cls = FileUpdateInfo

    def init_transfer_engine(self, init_info: FileInitInfo) -> None:
        """Nothing to connect to."""

    def start_weight_update(self) -> None:
        """Prepare each layer for new weights; its parameters hold nothing until they are in.

        What an update that failed has left is dropped first: vLLM keeps the tensors it had buffered
        and would load them again before the new ones.
        """
        abandon_unfinished(self.model)
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        """Load every tensor of the file.

        Raises:
            ValueError: it is not the file that was checked.
        """
        found = os.stat(update_info.path)
        if (found.st_ino, found.st_size) != (update_info.inode, update_info.num_bytes):
            raise ValueError(f"{update_info.path} is not the file that was checked")
        self.model.load_weights(_tensors(update_info))

    def finish_weight_update(self) -> None:
        """Bring the layers into their final form, tied heads and experts included."""
        finalize_layerwise_reload(self.model, self.model_config)
        repair_tied(self.model)
        repair_experts(self.model)

    def shutdown(self) -> None:
        """Nothing is held."""


def abandon_unfinished(model: Any) -> int:
    """Give every layer that an update has not finished its tensors from before.

    Returns:
        How many layers that were.
    """
    abandoned = 0
    for layer in model.modules():
        info = layerwise.get_layerwise_info(layer)
        if not info.can_load():
            continue
        if info.kernel_tensors is not None:
            layerwise._place_kernel_tensors(layer, info)
        info.reset()
        abandoned += 1
    layerwise.LOADING_LAYERS.clear()
    return abandoned


def repair_tied(model: Any) -> int:
    """Pack again what vLLM's reload leaves out on a CPU: a head that shares its embedding.

    There each linear layer keeps its weights in packed form (`cpu_linear`). A head that is tied to
    the embedding has a pack of its own, made of the old weights, that no way of reloading renews.
    On a GPU no layer is packed and nothing is done.

    Returns:
        How many layers were packed.
    """
    repaired = 0
    for module in model.modules():
        weight = getattr(module, "weight", None)
        method = getattr(module, "quant_method", None)
        if not hasattr(module, "cpu_linear") or method is None or weight is None:
            continue
        if weight.numel():
            method.process_weights_after_loading(module)
            repaired += 1
    return repaired


def repair_experts(model: Any) -> int:
    """Pack the experts again, which vLLM does at the first load alone on a CPU.

    The kernel there reads packed weights. An update writes the plain ones over them and stops:
    without this every expert reads its weights in the wrong order.

    Returns:
        How many layers were packed; 0 where no kernel of a CPU is in use.
    """
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

    repaired = 0
    for module in model.modules():
        kernel = getattr(getattr(module, "quant_method", None), "moe_kernel", None)
        experts = getattr(kernel, "fused_experts", None)
        if isinstance(experts, CPUUnquantizedExperts):
            experts.process_weights_after_loading(module)
            repaired += 1
    return repaired


def _tensors(info: FileUpdateInfo) -> Iterator[tuple[str, Any]]:
    with safe_open(info.path, framework="pt") as file:
        for name, stored in info.names.items():
            yield name, file.get_tensor(stored)
