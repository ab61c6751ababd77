"""From logits to one token per request, with its log-probability."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Sampled(NamedTuple):
    """One token per row."""

    ids: Tensor
    """[rows] int64."""
    logprobs: Tensor
    """[rows] fp32, after temperature; not finite where the row's logits were not."""


def sample(logits: Tensor, temperatures: Tensor, uniforms: Tensor) -> Sampled:
    """Sample by inverse distribution function, each row from its own uniform number.

    A row's token depends on its logits, temperature and uniform number alone, so a request gives
    the same tokens in any company (up to float ties).

    Args:
        logits: [rows, vocabulary] fp32.
        temperatures: [rows] fp32; 0 is greedy, with the log-probability of temperature 1.
        uniforms: [rows] fp64 in [0, 1).
    """
    greedy = temperatures == 0
    scale = torch.where(greedy, 1.0, temperatures).unsqueeze(1)
    logprobs = torch.log_softmax(logits / scale, dim=-1)
    # In fp64, and scaled by its own last value: a large vocabulary would lose its tail in fp32.
    # `right=True` skips entries that do not raise the sum, so no token of probability 0 is drawn.
    reached = logprobs.double().exp_().cumsum(dim=-1)
    target = uniforms.unsqueeze(1) * reached[:, -1:]
    ids = torch.searchsorted(reached, target, right=True).clamp_(max=logits.shape[1] - 1)
    if bool(greedy.any()):
        ids = torch.where(greedy.unsqueeze(1), logits.argmax(dim=-1, keepdim=True), ids)
    return Sampled(ids.squeeze(1), logprobs.gather(1, ids).squeeze(1))
