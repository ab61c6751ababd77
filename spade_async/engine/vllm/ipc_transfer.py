"""Brings a weight set in by CUDA IPC: vLLM's own backend, told in plain values instead of a pickle.

Our process has put the tensors on the GPU while tokens were sampled (`device_copies`), so that the
pause is a copy within the device. Needs that much memory there once more. Nothing of this ran on a
GPU yet: a CPU can only show that what is told is what vLLM's backend asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.ipc_engine import (
    IPCWeightTransferEngine,
    IPCWeightTransferUpdateInfo,
)

from spade_async.engine.vllm.ipc_handle import rebuild_arguments


@dataclass
class IpcUpdateInfo(WeightTransferUpdateInfo):
    """The tensors of one weight set, in the order of `names`."""

    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]
    handles: list[dict[str, list[Any]]]
    """For each tensor: UUID of a GPU -> `ipc_handle.plain_handle`."""


class IpcTransfer(IPCWeightTransferEngine):
    """vLLM's backend "ipc" without pickles."""

    update_info_cls = IpcUpdateInfo

    def receive_weights(self, update_info: IpcUpdateInfo) -> None:
        """Load every tensor from the copy on this GPU."""
        super().receive_weights(
            IPCWeightTransferUpdateInfo(
                names=update_info.names,
                dtype_names=update_info.dtypes,
                shapes=update_info.shapes,
                ipc_handles=[_arguments(handles) for handles in update_info.handles],
            )
        )


def _arguments(handles: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Any, ...]]:
    return {gpu: rebuild_arguments(plain, torch) for gpu, plain in handles.items()}
