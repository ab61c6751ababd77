"""Digests of single tensors: what the learner published and what a generator holds, by name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def tensor_digests(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Hex blake2b (16 bytes) of each tensor: element type, shape and bytes.

    Names that are the same memory (tied weights) are hashed once. About 1 s per GB.
    """
    found: dict[str, str] = {}
    seen: dict[tuple[int, tuple[int, ...], tuple[int, ...], str], str] = {}
    for name, tensor in tensors.items():
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), str(tensor.dtype))
        if tensor.numel() == 0 or key not in seen:
            seen[key] = _digest(tensor)
        found[name] = seen[key]
    return found


def _digest(tensor: torch.Tensor) -> str:
    import torch

    plain = tensor.detach().cpu().contiguous()
    hasher = hashlib.blake2b(f"{plain.dtype} {tuple(plain.shape)}".encode(), digest_size=16)
    if plain.numel():
        array: np.ndarray = plain.view(-1).view(torch.uint8).numpy()
        hasher.update(array.data)
    return hasher.hexdigest()
