"""One optimiser step from one training batch: step 10 of the data flow.

Micro-batches accumulate the gradient; it is clipped and applied once. An update that is not finite
(loss, gradient norm or the weights after it) leaves weights and optimiser exactly as they were.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from spade_async.config.schema import Config
from spade_async.grpo.batch import (
    ROLE_NUMBERS,
    MicroBatch,
    Normaliser,
    build_micro_batch,
    has_gradient,
    num_input_tokens,
    plan_micro_batches,
)
from spade_async.grpo.correction import truncated_weights
from spade_async.grpo.loss import LossSettings, kl_to_start, surrogate, token_logprobs
from spade_async.grpo.samples import TrainSample
from spade_async.learner.metrics import TokenFigures, all_finite, finite_only
from spade_async.learner.progress import UpdateCancelled
from spade_async.learner.state import LearnerState, learning_rate
from spade_async.types import Role

TOKEN_LOSS = "token loss"


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What became of one batch."""

    applied: bool
    reason: str | None
    """Why it was not applied; None when it was."""
    metrics: dict[str, float]


class Updater:
    """Applies batches to a `LearnerState`. Synchronous: runs in a worker thread."""

    def __init__(
        self, state: LearnerState, config: Config, start_model: PreTrainedModel | None = None
    ):
        """Prepare.

        Args:
            state: what is trained.
            config: sections learner, agent and designer are read.
            start_model: frozen start policy; needed when `learner.kl_to_start` is above 0.
        """
        learner = config.learner
        if learner.kl_to_start > 0 and start_model is None:
            raise ValueError(f"learner.kl_to_start={learner.kl_to_start} needs the start model")
        self._state = state
        self._learner = learner
        self._start_model = start_model if learner.kl_to_start > 0 else None
        self._settings = LossSettings(
            clip_low=learner.clip_low,
            clip_high=learner.clip_high,
            tis_cap=learner.tis_cap,
            kl_to_start=learner.kl_to_start,
        )
        self._temperatures = {
            Role.AGENT: config.agent.temperature,
            Role.DESIGNER: config.designer.temperature,
        }

    def update(
        self,
        samples: Sequence[TrainSample],
        step: int,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> UpdateResult:
        """Train on the samples once; `step` sets the learning rate.

        Raises:
            ValueError: a token id outside the vocabulary.
            UpdateCancelled: `should_stop` became true; weights and optimiser are unchanged.
        """
        began = time.perf_counter()
        self._check_vocabulary(samples)
        figures = TokenFigures(self._learner.tis_cap)
        loss = self.accumulate(samples, figures, should_stop)
        norm, reason = self._clip(loss)
        lr = learning_rate(step, self._learner)
        if reason is None:
            reason = self._apply(lr)
        self._state.optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - began
        num_tokens = sum(s.trace.num_trained_tokens for s in samples)
        metrics = figures.metrics() | {
            "learner/loss": loss,
            "learner/grad_norm": norm,
            "learner/lr": lr,
            "learner/tokens": float(num_tokens),
            "learner/tokens_per_s": num_tokens / seconds,
            "learner/samples": float(len(samples)),
            "learner/samples_zero_advantage": float(sum(s.advantage == 0.0 for s in samples)),
            "learner/nonfinite": 0.0 if reason is None else 1.0,
            "learner/update_s": seconds,
        }
        return UpdateResult(reason is None, reason, finite_only(metrics))

    def accumulate(
        self,
        samples: Sequence[TrainSample],
        figures: TokenFigures,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> float:
        """Set the gradient of the step's loss on the parameters; returns the loss.

        Samples without gradient are not computed but count in the denominators.
        """
        learner = self._learner
        self._state.optimizer.zero_grad(set_to_none=True)
        scale = Normaliser.of(samples).token_scale(learner.designer_weight)
        computed = [s for s in samples if has_gradient(s, learner.kl_to_start)]
        lengths = [num_input_tokens(s) for s in computed]
        total = 0.0
        for indices in plan_micro_batches(lengths, learner.micro_batch_tokens):
            if should_stop():
                raise UpdateCancelled
            micro = build_micro_batch([computed[i] for i in indices], self._temperatures)
            loss = self._loss(micro, scale, figures)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        for parameter in self._state.parameters.values():
            # No sample has a gradient: the step's gradient is zero, not missing.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return total

    def _clip(self, loss: float) -> tuple[float, str | None]:
        """Norm of the gradient, which is clipped; and what is not finite, or None."""
        parameters = self._state.parameters
        gradients = [p.grad for p in parameters.values() if p.grad is not None]
        total = nn.utils.get_total_norm(gradients)
        norm = float(total)
        if not math.isfinite(loss):
            return norm, f"loss is {loss}"
        if not math.isfinite(norm):
            for name, parameter in parameters.items():
                if parameter.grad is not None and not all_finite([parameter.grad]):
                    return norm, f"gradient of {name} is not finite"
            return norm, f"gradient norm is {norm}"
        nn.utils.clip_grads_with_norm_(parameters.values(), self._learner.grad_clip, total)
        return norm, None

    def _loss(self, micro: MicroBatch, scale: Tensor, figures: TokenFigures) -> Tensor:
        return (self.token_terms(micro, figures)[TOKEN_LOSS] * scale[micro.roles]).sum()

    def token_terms(self, micro: MicroBatch, figures: TokenFigures) -> dict[str, Tensor]:
        """[N] each: what the loss of the trained tokens is made of, in order of computation.

        The last one, `TOKEN_LOSS`, is the loss of each token before normalisation.
        """
        logprobs, entropy = self._logprobs(self._state.model, micro)
        terms = {
            "generator log-probability": micro.generator_logprobs,
            "advantage": micro.advantages,
            "learner log-probability": logprobs,
            "importance weight": truncated_weights(
                logprobs, micro.generator_logprobs, self._settings.tis_cap
            ),
            TOKEN_LOSS: surrogate(
                logprobs, micro.generator_logprobs, micro.advantages, self._settings
            ),
        }
        figures.add(micro, logprobs, entropy)
        if self._start_model is not None:
            penalty = self._kl_penalty(self._start_model, micro, logprobs, figures)
            token_loss = terms.pop(TOKEN_LOSS)
            terms |= {"KL to the start": penalty, TOKEN_LOSS: token_loss + penalty}
        return terms

    def _kl_penalty(
        self,
        start_model: PreTrainedModel,
        micro: MicroBatch,
        logprobs: Tensor,
        figures: TokenFigures,
    ) -> Tensor:
        """[N] weighted KL(policy || start) on the agent's tokens, 0 on the designer's."""
        is_agent = micro.roles == ROLE_NUMBERS[Role.AGENT]
        if not bool(is_agent.any()):
            return torch.zeros_like(logprobs)
        with torch.no_grad():
            start_logprobs, _ = self._logprobs(start_model, micro)
        weights = truncated_weights(logprobs, micro.generator_logprobs, self._settings.tis_cap)
        estimates = kl_to_start(logprobs, start_logprobs, weights)
        figures.add_kl_to_start(estimates.detach()[is_agent])
        return torch.where(is_agent, self._settings.kl_to_start * estimates, 0.0)

    def _logprobs(self, model: PreTrainedModel, micro: MicroBatch) -> tuple[Tensor, Tensor]:
        first = 0
        kept = {}
        if self._state.keeps_logits:
            # Logits of the shared prompt columns are never used: with a large vocabulary they
            # would be most of the memory.
            first = int(micro.columns.min())
            kept["logits_to_keep"] = torch.arange(first, int(micro.columns.max()) + 1)
        output = model(
            input_ids=micro.token_ids_RL,
            attention_mask=micro.attention_mask_RL,
            use_cache=False,
            **kept,
        )
        logits_NV = output.logits[micro.rows, micro.columns - first]
        return token_logprobs(logits_NV, micro.targets, micro.temperatures)

    def _apply(self, lr: float) -> str | None:
        """Step the optimiser; put everything back and say why when a weight is not finite."""
        state = self._state
        for group in state.optimizer.param_groups:
            group["lr"] = lr
        parameters = list(state.parameters.values())
        weights_before = [p.detach().clone() for p in parameters]
        moments_before = [
            {k: v.clone() for k, v in state.optimizer.state.get(p, {}).items()} for p in parameters
        ]
        state.optimizer.step()
        bad = self._bad_after_step()
        if bad is None:
            return None
        with torch.no_grad():
            for parameter, before in zip(parameters, weights_before, strict=True):
                parameter.copy_(before)
        for parameter, moments in zip(parameters, moments_before, strict=True):
            if moments:
                state.optimizer.state[parameter] = moments
            else:
                state.optimizer.state.pop(parameter, None)
        return f"{bad} is not finite after the step"

    def _bad_after_step(self) -> str | None:
        """The first weight or moment of the optimiser that is not finite, by name."""
        for name, parameter in self._state.parameters.items():
            if not all_finite([parameter.detach()]):
                return f"weight {name}"
            for key, moment in self._state.optimizer.state.get(parameter, {}).items():
                if not all_finite([moment]):
                    return f"{key} of {name}"
        return None

    def _check_vocabulary(self, samples: Sequence[TrainSample]) -> None:
        vocab = self._state.vocab_size
        for index, sample in enumerate(samples):
            largest = int(sample.trace.token_ids.max())
            if largest >= vocab:
                raise ValueError(
                    f"sample {sample.sample_id!r} (index {index}): token id {largest} is outside "
                    f"the vocabulary of {vocab}"
                )
