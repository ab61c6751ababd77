"""Muon: momentum whose matrix updates are made orthogonal. Learns the warm start in fewer steps.

The update of a weight matrix is the nearest (semi-)orthogonal matrix to its Nesterov momentum, by
five Newton-Schulz iterations; equal shapes are done in one batch. Vectors and embeddings stay with
AdamW. Source: Keller Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


class Muon:
    """Muon over hidden weight matrices; set `lr` before each step."""

    def __init__(self, matrices: Sequence[torch.Tensor], lr: float, momentum: float = 0.95) -> None:
        self.lr = lr
        self._momentum = momentum
        by_shape: dict[tuple[int, ...], list[torch.Tensor]] = {}
        for matrix in matrices:
            by_shape.setdefault(tuple(matrix.shape), []).append(matrix)
        self._groups = list(by_shape.values())
        self._buffers = [torch.zeros(len(g), *g[0].shape) for g in self._groups]

    @torch.no_grad()
    def step(self) -> None:
        """Apply one update from the gradients of all matrices."""
        for matrices, buffer in zip(self._groups, self._buffers, strict=True):
            gradient = torch.stack([m.grad for m in matrices if m.grad is not None])
            buffer.lerp_(gradient, 1 - self._momentum)
            update = orthogonal(gradient.lerp(buffer, self._momentum))
            scale = max(1.0, update.shape[-2] / update.shape[-1]) ** 0.5
            for matrix, one in zip(matrices, update, strict=True):
                matrix.add_(one, alpha=-self.lr * scale)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Nearest orthogonal matrices, roughly (singular values in about [0.7, 1.2]), [N, R, C]."""
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: torch.Tensor = x.mT if tall else x
    return result
