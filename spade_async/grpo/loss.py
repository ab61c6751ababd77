"""The GRPO loss: clipped surrogate with truncated importance sampling, optional KL to the start.

One update per batch, so the proximal policy is the policy at the start of the update: the ratio is
1 in value and carries the gradient (step 10 of the data flow). Normalisation: a token-mean per role
over the whole step,

    loss = sum over roles of  weight_role / tokens_role * sum over trained tokens of the token loss

so neither micro-batches nor skipped samples change the gradient. No torch module is made here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spade_async.grpo.correction import MAX_LOG_RATIO, truncated_weights


@dataclass(frozen=True, slots=True)
class LossSettings:
    """Numbers of the objective, from `learner.*`."""

    clip_low: float
    clip_high: float
    tis_cap: float
    kl_to_start: float = 0.0


def token_logprobs(
    logits_NV: Tensor, targets: Tensor, temperatures: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and entropy of its distribution, both at its temperature.

    Args:
        logits_NV: [N, V] logits, any float type; computed in float32.
        targets: [N] token ids.
        temperatures: [N] above 0.

    Returns:
        ([N] log-probabilities with gradient, [N] entropies in nats without gradient).
    """
    logprobs_NV = torch.log_softmax(logits_NV.float() / temperatures[:, None], dim=-1)
    chosen = logprobs_NV.gather(1, targets[:, None]).squeeze(1)
    with torch.no_grad():
        probs_NV = logprobs_NV.exp()
        # where: 0 * -inf is NaN for a token the model rules out.
        terms_NV = torch.where(probs_NV > 0, probs_NV * logprobs_NV, 0.0)
        entropy = -terms_NV.sum(-1)
    return chosen, entropy


def surrogate(
    learner_logprobs: Tensor,
    generator_logprobs: Tensor,
    advantages: Tensor,
    settings: LossSettings,
) -> Tensor:
    """[N] token losses ``-w * min(r A, clip(r, 1 - low, 1 + high) A)``.

    Only trained tokens come here: `batch.build_micro_batch` selects them by index. Multiplying by
    a mask instead would let one infinite value under a zero mask turn the step into NaN.

    Args:
        learner_logprobs: [N] with gradient.
        generator_logprobs: [N] of the sampler.
        advantages: [N]
        settings: clip range and cap.
    """
    weights = truncated_weights(learner_logprobs, generator_logprobs, settings.tis_cap)
    ratio = proximal_ratio(learner_logprobs)
    clipped = ratio.clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high)
    return -weights * torch.minimum(ratio * advantages, clipped * advantages)


def proximal_ratio(learner_logprobs: Tensor) -> Tensor:
    """``pi / stop_gradient(pi)``: 1 in value, the gradient of the log-probability."""
    return (learner_logprobs - learner_logprobs.detach()).exp()


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
    return weights.detach() * proximal_ratio(learner_logprobs) * k3
