"""A CUDA IPC handle as plain values and back, and the copies on the GPUs that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spade_async.engine.vllm.staged import StagedWeights

_CLASSES = (0, 4)
"""Places of torch's arguments that are always the same two classes."""
_DTYPE = 5


def plain_handle(arguments: Sequence[Any]) -> list[Any]:
    """The arguments of torch's `rebuild_cuda_tensor`, as numbers, texts, bytes and lists of these.

    Raises:
        TypeError: one is of another kind.
    """
    plain: list[Any] = []
    for place, value in enumerate(arguments):
        if place in _CLASSES:
            plain.append(None)
        elif place == _DTYPE:
            plain.append(str(value).removeprefix("torch."))
        elif isinstance(value, tuple):
            plain.append([int(size) for size in value])
        elif value is None or isinstance(value, bool | int | bytes):
            plain.append(value)
        else:
            raise TypeError(f"argument {place} of a CUDA handle is a {type(value).__name__}")
    return plain


def rebuild_arguments(plain: Sequence[Any], torch: Any) -> tuple[Any, ...]:
    """Inverse of `plain_handle`.

    Raises:
        ValueError: the type of its elements is not one of torch's.
    """
    arguments = [tuple(value) if isinstance(value, list) else value for value in plain]
    dtype = getattr(torch, str(plain[_DTYPE]), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{plain[_DTYPE]!r} is not a type of torch")
    arguments[_CLASSES[0]] = torch.Tensor
    arguments[_CLASSES[1]] = torch.storage.TypedStorage
    arguments[_DTYPE] = dtype
    return tuple(arguments)


def device_copies(staged: StagedWeights) -> tuple[dict[str, Any], list[Any]]:
    """Copy a checked weight set to every visible GPU.

    Returns:
        What `ipc_transfer.IpcUpdateInfo` is made of, and the copies, which must be held until the
        update is done.
    """
    import torch
    from safetensors import safe_open
    from torch.multiprocessing import reductions

    reduce_tensor: Any = reductions.reduce_tensor
    devices = range(torch.cuda.device_count())
    gpus = [str(torch.cuda.get_device_properties(device).uuid) for device in devices]
    info: dict[str, list[Any]] = {"names": [], "dtypes": [], "shapes": [], "handles": []}
    copies = []
    with safe_open(staged.path, framework="pt") as file:
        for name, stored in staged.names.items():
            tensor = file.get_tensor(stored)
            handles = {}
            for device, gpu in zip(devices, gpus, strict=True):
                copy = tensor.to(f"cuda:{device}").contiguous()
                copies.append(copy)
                handles[gpu] = plain_handle(reduce_tensor(copy)[1])
            info["names"].append(name)
            info["dtypes"].append(str(tensor.dtype).removeprefix("torch."))
            info["shapes"].append(list(tensor.shape))
            info["handles"].append(handles)
    for device in devices:
        torch.cuda.synchronize(device)
    return dict(info), copies
