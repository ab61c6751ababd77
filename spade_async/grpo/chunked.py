"""Log-probabilities of tokens from hidden states, without the logits of all of them at once.

The logits of N tokens over a vocabulary of V are the largest tensor of an update by far, and each
is used once. Here a bounded number of tokens goes through the output head at a time: logits,
log-softmax, the target's entry and the entropy, then the logits are dropped. The backward pass
computes them again, one chunk at a time, and turns them in place into their gradient

    d log p(a) / d z = (1[a] - p) / T        d H / d z = -p (log p + H) / T

so the memory is that of one chunk, whatever N x V is, for a third more work in the head.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from spade_async.grpo.loss import at_least_float32, token_logprobs

CHUNK_LOGITS = 1 << 24
"""Most logits of one chunk: 64 MiB in float32, and the backward pass holds about three of these."""


def head_logprobs(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperatures: Tensor,
    *,
    entropy_gradient: bool = False,
    chunk_logits: int = CHUNK_LOGITS,
) -> tuple[Tensor, Tensor]:
    """`loss.token_logprobs` of the logits ``hidden @ weight.T + bias``.

    What fits into one chunk is computed in the plain way: nothing is computed twice then.

    Args:
        hidden_ND: [N, D] last hidden states at the places that predict the targets.
        weight_VD: [V, D] of the output head, tied to the embedding or not.
        bias: [V] of the output head.
        targets: [N] token ids.
        temperatures: [N] above 0.
        entropy_gradient: whether the entropy is part of the loss.
        chunk_logits: most logits at once; a chunk has at least one token.

    Returns:
        ([N] log-probabilities with gradient, [N] entropies in nats, without gradient unless asked).
    """
    tokens = max(1, chunk_logits // weight_VD.shape[0])
    if len(hidden_ND) <= tokens:
        logits_NV = F.linear(hidden_ND, weight_VD, bias)
        return token_logprobs(logits_NV, targets, temperatures, entropy_gradient=entropy_gradient)
    # `apply` has types from torch 2.15 on, and none before.
    found: tuple[Tensor, Tensor] = _Chunked.apply(  # type: ignore[no-untyped-call,unused-ignore]
        hidden_ND, weight_VD, bias, targets, temperatures, entropy_gradient, tokens
    )
    return found


def _chunks(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


class _Chunked(torch.autograd.Function):
    """Keeps hidden states and entropies; logits live for one chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperatures: Tensor,
        entropy_gradient: bool,
        tokens: int,
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(hidden_ND.dtype, torch.float32)
        logprobs = torch.empty(len(hidden_ND), dtype=dtype, device=hidden_ND.device)
        entropy = torch.empty_like(logprobs)
        for part in _chunks(len(hidden_ND), tokens):
            logits = F.linear(hidden_ND[part], weight_VD, bias)
            logprobs[part], entropy[part] = token_logprobs(
                logits, targets[part], temperatures[part]
            )
        ctx.save_for_backward(hidden_ND, weight_VD, bias, targets, temperatures, entropy)
        ctx.tokens = tokens
        ctx.set_materialize_grads(False)
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, temperatures, entropy = ctx.saved_tensors
        zero = torch.zeros_like(entropy)
        of_logprob, of_entropy = (zero if g is None else g for g in gradients)
        for_hidden, for_weight, for_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.zeros_like(hidden) if for_hidden else None
        grad_weight = torch.zeros_like(weight) if for_weight else None
        grad_bias = torch.zeros_like(bias) if for_bias else None
        # A token that a rule dropped or clipped has no gradient: it needs no logits either.
        moving = torch.nonzero((of_logprob != 0) | (of_entropy != 0)).squeeze(1)
        for part in _chunks(len(moving), ctx.tokens):
            at = moving[part]
            states = hidden[at]
            logits = at_least_float32(F.linear(states, weight, bias)) / temperatures[at, None]
            gradient = _of_logits(
                torch.log_softmax(logits, dim=-1), targets[at], of_logprob[at], of_entropy[at],
                entropy[at],
            )  # fmt: skip
            gradient = gradient.div_(temperatures[at, None]).to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[at] = gradient @ weight
            if grad_weight is not None:
                grad_weight.addmm_(gradient.T, states)
            if grad_bias is not None:
                grad_bias += gradient.sum(0)
        return grad_hidden, grad_weight, grad_bias, None, None, None, None


def _of_logits(
    logprobs_NV: Tensor, targets: Tensor, of_logprob: Tensor, of_entropy: Tensor, entropy: Tensor
) -> Tensor:
    """[N, V] gradient with respect to the logits over the temperature."""
    probs = logprobs_NV.exp()
    if bool((of_entropy != 0).any()):
        factor = (logprobs_NV + entropy[:, None]).mul_(-of_entropy[:, None])
        factor -= of_logprob[:, None]
        # where: 0 * -inf is NaN for a token the model rules out.
        gradient = torch.where(probs > 0, probs * factor, 0.0)
    else:
        gradient = probs.mul_(-of_logprob[:, None])
    gradient.scatter_add_(1, targets[:, None], of_logprob[:, None])
    return gradient
