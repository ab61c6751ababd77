"""What the token losses are made from: log-probabilities, entropy, KL to the start.

The losses themselves come from a correction rule (`correction/`). Normalisation: a token-mean per
role over the whole step,

    loss = sum over roles of  weight_role / tokens_role * sum over trained tokens of the token loss

so neither micro-batches nor skipped samples change the gradient. No torch module is made here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spade_async.grpo.correction.tokens import MAX_LOG_RATIO, carried


def token_logprobs(
    logits_NV: Tensor, targets: Tensor, temperatures: Tensor, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and entropy of its distribution, both at its temperature.

    Args:
        logits_NV: [N, V] logits, any float type; computed in float32, or in float64 if they are.
        targets: [N] token ids.
        temperatures: [N] above 0.
        entropy_gradient: whether the entropy is part of the loss.

    Returns:
        ([N] log-probabilities with gradient, [N] entropies in nats, without gradient unless asked).
    """
    logprobs_NV = torch.log_softmax(at_least_float32(logits_NV) / temperatures[:, None], dim=-1)
    chosen = logprobs_NV.gather(1, targets[:, None]).squeeze(1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        probs_NV = logprobs_NV.exp()
        # where: 0 * -inf is NaN for a token the model rules out.
        terms_NV = torch.where(probs_NV > 0, probs_NV * logprobs_NV, 0.0)
        entropy = -terms_NV.sum(-1)
    return chosen, entropy


def at_least_float32(values: Tensor) -> Tensor:
    """float32, or float64 as they are: half precision has too few digits for a softmax."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def kl_to_start(learner_logprobs: Tensor, start_logprobs: Tensor, weights: Tensor) -> Tensor:
    """Token estimates of KL(policy || start), weighted for the off-policy sampler.

    ``w * r * k3`` with ``k3 = exp(s) - 1 - s`` and ``s = log start - log policy``. The factor r (1
    in value) makes the gradient ``-s * grad log policy``, the one of the reverse KL; k3 alone would
    give the gradient of the forward KL.

    Args:
        learner_logprobs: [N] with gradient.
        start_logprobs: [N] of the frozen start policy.
        weights: [N] truncated importance weights, without gradient.
    Source: DeepSeek-V3.2, unbiased KL estimate; k3 from Schulman, "Approximating KL divergence".
    """
    log_ratio = (start_logprobs.detach() - learner_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    k3 = log_ratio.exp() - 1.0 - log_ratio
    return weights.detach() * carried(learner_logprobs) * k3
