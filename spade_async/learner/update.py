"""One optimiser step from one training batch: step 10 of the data flow.

Micro-batches accumulate the gradient; it is clipped and applied once. An update that is not finite
(loss, gradient norm or the weights after it) leaves weights and optimiser exactly as they were.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from spade_async.config.correction import parameters
from spade_async.config.schema import Config
from spade_async.grpo.batch import (
    ROLE_NUMBERS,
    MicroBatch,
    Normaliser,
    build_micro_batch,
    has_gradient,
    num_input_tokens,
)
from spade_async.grpo.correction import Terms, Tokens, make_rule, truncated_weights
from spade_async.grpo.correction.gepo import step_log_means
from spade_async.grpo.correction.report import all_masked
from spade_async.grpo.loss import kl_to_start
from spade_async.grpo.plan import padded_tokens, plan_micro_batches
from spade_async.grpo.samples import TrainSample, whole_ids
from spade_async.learner.critic import Judged
from spade_async.learner.learned_tokens import LearnedTokens
from spade_async.learner.metrics import TokenFigures, all_finite, finite_only
from spade_async.learner.progress import UpdateCancelled
from spade_async.learner.scoring import Scores
from spade_async.learner.sharding import own, whole
from spade_async.learner.snapshot import Snapshot
from spade_async.learner.state import LearnerState, learning_rate
from spade_async.types import Role

TOKEN_LOSS = "token loss"

KL_CAP = 2.0
"""Truncation of the weights of the KL term when the rule has no cap."""


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What became of one batch."""

    applied: bool
    reason: str | None
    """Why it was not applied; None when it was."""
    skipped: str | None
    """Why there was nothing to apply, although nothing is wrong with the batch; else None."""
    metrics: dict[str, float]
    learned: LearnedTokens = field(default_factory=LearnedTokens)
    """Of the first pass, token by token."""


class Updater:
    """Applies batches to a `LearnerState`. Synchronous: runs in a worker thread."""

    def __init__(
        self, state: LearnerState, config: Config, start_model: PreTrainedModel | None = None
    ):
        """Prepare.

        Args:
            state: what is trained.
            config: sections learner, agent and designer are read.
            start_model: frozen start policy; needed when `learner.kl_to_start` is above 0, but for
                an adapter: without it the model is the start policy.
        """
        learner = config.learner
        if learner.kl_to_start > 0 and start_model is None and not learner.lora.rank:
            raise ValueError(f"learner.kl_to_start={learner.kl_to_start} needs the start model")
        self._state = state
        self._learner = learner
        self._ranks = state.ranks
        self._start: Scores | None = None
        if learner.kl_to_start > 0:
            self._start = state.start_scorer(start_model)
        self._rule = make_rule(learner.correction, learner.clip_low, learner.clip_high)
        # The KL term is weighted by truncated token ratios whatever the rule.
        self._cap = parameters(learner.correction).get("cap", KL_CAP)
        self._proximal: list[Tensor] = []
        """Log-probabilities at the start of the update, per micro-batch, from the first pass."""
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
        """Train on the samples, `learner.passes` times; `step` sets the learning rate.

        Loss, gradient norm and token figures are those of the first pass.

        Raises:
            ValueError: a token id outside the vocabulary.
            UpdateCancelled: `should_stop` became true; weights and optimiser are unchanged.
        """
        began = time.perf_counter()
        self._check_vocabulary(samples)
        judged = self.judged(samples)
        if judged is not None:
            samples = judged.samples
        figures = TokenFigures(self._cap)
        lr = learning_rate(step, self._learner)
        loss = self.accumulate(samples, figures, should_stop)
        figures = figures.gathered(self._ranks)
        norm, reason = self._clip(loss)
        skipped = self._skipped(samples, figures)
        if reason is None and skipped is None:
            reason = self._passes(samples, lr, should_stop)
        of_critic: dict[str, float] = {}
        if judged is not None and self._state.critic is not None and reason is None:
            of_critic = self._state.critic.learn(judged)
        self._state.optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - began
        num_tokens = sum(s.trace.num_trained_tokens for s in samples)
        metrics = (
            figures.metrics()
            | of_critic
            | {
                "learner/loss": loss,
                "learner/grad_norm": norm,
                "learner/lr": lr,
                "learner/tokens": float(num_tokens),
                "learner/tokens_per_s": num_tokens / seconds,
                "learner/samples": float(len(whole_ids(s.sample_id for s in samples))),
                "learner/samples_zero_advantage": float(
                    len(whole_ids(s.sample_id for s in samples if s.advantage == 0.0))
                ),
                "learner/nonfinite": 0.0 if reason is None else 1.0,
                "learner/skipped": 0.0 if skipped is None else 1.0,
                "learner/update_s": seconds,
            }
        )
        learned = LearnedTokens.of(samples, figures)
        return UpdateResult(reason is None, reason, skipped, finite_only(metrics), learned)

    def judged(self, samples: Sequence[TrainSample]) -> Judged | None:
        """What the value head makes of a step; None without one."""
        critic = self._state.critic
        if critic is None:
            return None
        return critic.judge(self._state.model, samples, self._learner.micro_batch_tokens)

    def trains(self, sample: TrainSample) -> bool:
        """Whether the sample moves the weights; others are not computed."""
        learner = self._learner
        # Two terms act on every token, whatever its advantage.
        always = learner.entropy_weight > 0 or learner.correction.rule == "squared_log_ratio"
        return always or has_gradient(sample, learner.kl_to_start)

    def accumulate(
        self,
        samples: Sequence[TrainSample],
        figures: TokenFigures,
        should_stop: Callable[[], bool] = lambda: False,
        *,
        is_first_pass: bool = True,
    ) -> float:
        """Set the gradient of the step's loss on the parameters; returns the loss.

        Samples without gradient are not computed but count in the denominators. A later pass must
        be over the same samples as the first. All ranks give the same samples of the whole step;
        each computes its share of the micro-batches and has its slice of the gradient. The figures
        are of this rank's share.
        """
        learner = self._learner
        self._state.optimizer.zero_grad(set_to_none=True)
        device, world = self._state.device, self._ranks.world
        scale = Normaliser.of(samples).token_scale(learner.designer_weight).to(device)
        computed = [s for s in samples if self.trains(s)]
        means = step_log_means(samples) if learner.correction.rule == "gepo" else None
        lengths = [num_input_tokens(s) for s in computed]
        figures.load = self._state.scorer.routers.new_load()
        total = 0.0
        if is_first_pass:
            self._proximal = []
        plan = plan_micro_batches(lengths, learner.micro_batch_tokens)
        figures.planned(sum(lengths), padded_tokens(lengths, plan), len(plan))
        for number, (indices, counts) in enumerate(self._ranks.share(plan)):
            if self._ranks.any(should_stop()):
                raise UpdateCancelled
            chosen = [computed[i] for i in indices]
            of_groups = torch.tensor([means[s.sample_id] for s in chosen]) if means else None
            noted = figures if counts else TokenFigures()
            noted.sample_order += [(s.sample_id, s.trace.num_trained_tokens) for s in chosen]
            micro = build_micro_batch(chosen, self._temperatures, group_log_means=of_groups)
            proximal = None if is_first_pass else self._proximal[number]
            loss = self._loss(micro.to(device), scale, noted, proximal)
            # FSDP2 takes the mean over the ranks; the step's gradient is their sum.
            (loss * float(counts) * world).backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach()) * counts
        total = self._ranks.sum(total)
        for parameter in self._state.parameters.values():
            # No sample has a gradient: the step's gradient is zero, not missing.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return total

    def _clip(self, loss: float) -> tuple[float, str | None]:
        """Norm of the gradient, which is clipped; and what is not finite, or None."""
        parameters = self._state.parameters
        gradients = [p.grad for p in parameters.values() if p.grad is not None]
        total = whole(nn.utils.get_total_norm(gradients))
        norm = float(total)
        if not math.isfinite(loss):
            return norm, f"loss is {loss}"
        if not math.isfinite(norm):
            bad = self._first_bad([("gradient of " + n, p.grad) for n, p in parameters.items()])
            return norm, f"gradient norm is {norm}" if bad is None else f"{bad} is not finite"
        nn.utils.clip_grads_with_norm_(parameters.values(), self._learner.grad_clip, total)
        return norm, None

    def _skipped(self, samples: Sequence[TrainSample], figures: TokenFigures) -> str | None:
        """Why nothing is applied (momentum alone must not move the weights), or None."""
        if not samples:
            return "the batch has no samples: all were cut"
        tokens = figures.tokens()
        if self._start is None and tokens is not None and all_masked(tokens):
            rule = self._learner.correction.rule
            return f'learner.correction.rule="{rule}" let no token of a sample through'
        return None

    def _loss(
        self, micro: MicroBatch, scale: Tensor, figures: TokenFigures, proximal: Tensor | None
    ) -> Tensor:
        losses = self.token_terms(micro, figures, proximal)[TOKEN_LOSS]
        return (losses * scale[micro.roles]).sum()

    def token_terms(
        self, micro: MicroBatch, figures: TokenFigures, proximal: Tensor | None = None
    ) -> dict[str, Tensor]:
        """[N] each: what the loss of the trained tokens is made of, in order of computation.

        The last one, `TOKEN_LOSS`, is the loss of each token before normalisation.

        Args:
            micro: the tokens.
            figures: where they are counted.
            proximal: [N] log-probabilities at the start of the update; None in the first pass,
                where they are the present ones (and are kept).
        """
        wants_entropy = self._learner.entropy_weight > 0
        scorer = self._state.scorer
        scorer.load = figures.load
        logprobs, entropy = scorer(micro, entropy_gradient=wants_entropy)
        scorer.load = None
        if proximal is None:
            proximal = logprobs.detach()
            self._proximal.append(proximal)
        corrected = self._rule(
            Tokens(
                policy=logprobs,
                proximal=proximal,
                behaviour=micro.generator_logprobs,
                advantages=micro.advantages,
                sequences=micro.rows,
                group_log_means=micro.group_log_means,
            )
        )
        terms = {
            "generator log-probability": micro.generator_logprobs,
            "advantage": micro.advantages,
            "learner log-probability": logprobs,
            "importance weight": corrected.used,
            TOKEN_LOSS: corrected.losses,
        }
        figures.add(micro, logprobs, entropy, corrected, _gradient(corrected, logprobs))
        if wants_entropy:
            bonus = -self._learner.entropy_weight * entropy
            token_loss = terms.pop(TOKEN_LOSS)
            terms |= {"entropy term": bonus, TOKEN_LOSS: token_loss + bonus}
        if self._start is not None:
            penalty = self._kl_penalty(self._start, micro, logprobs, figures)
            token_loss = terms.pop(TOKEN_LOSS)
            terms |= {"KL to the start": penalty, TOKEN_LOSS: token_loss + penalty}
        return terms

    def _kl_penalty(
        self,
        start: Scores,
        micro: MicroBatch,
        logprobs: Tensor,
        figures: TokenFigures,
    ) -> Tensor:
        """[N] weighted KL(policy || start) on the agent's tokens, 0 on the designer's."""
        is_agent = micro.roles == ROLE_NUMBERS[Role.AGENT]
        if not bool(is_agent.any()):
            return torch.zeros_like(logprobs)
        with torch.no_grad():
            start_logprobs, _ = start(micro, entropy_gradient=False)
        weights = truncated_weights(logprobs, micro.generator_logprobs, self._cap)
        # Without the generator's log-probabilities (rule "none" only) the samples count as fresh.
        weights = torch.where(torch.isnan(micro.generator_logprobs), 1.0, weights)
        estimates = kl_to_start(logprobs, start_logprobs, weights)
        figures.add_kl_to_start(estimates.detach()[is_agent])
        return torch.where(is_agent, self._learner.kl_to_start * estimates, 0.0)

    def _passes(
        self, samples: Sequence[TrainSample], lr: float, should_stop: Callable[[], bool]
    ) -> str | None:
        """Apply the gradient that is set, then the further passes; all or nothing.

        Returns:
            What was not finite; everything is then as it was before the first pass.
        """
        before = Snapshot(self._state)
        reason = self._apply(lr)
        try:
            for _ in range(1, self._learner.passes):
                if reason is None:
                    figures = TokenFigures(self._cap)
                    loss = self.accumulate(samples, figures, should_stop, is_first_pass=False)
                    _, reason = self._clip(loss)
                if reason is None:
                    reason = self._apply(lr)
        except UpdateCancelled:
            before.restore(self._state)
            raise
        if reason is not None:
            before.restore(self._state)
        return reason

    def _apply(self, lr: float) -> str | None:
        """Step the optimiser; says what is not finite after it, or None."""
        for group in self._state.optimizer.param_groups:
            group["lr"] = lr
        self._state.optimizer.step()
        bad = self._bad_after_step()
        return None if bad is None else f"{bad} is not finite after the step"

    def _bad_after_step(self) -> str | None:
        """The first weight or moment of the optimiser that is not finite, by name."""
        tensors: list[tuple[str, Tensor | None]] = []
        for name, parameter in self._state.parameters.items():
            tensors.append((f"weight {name}", parameter.detach()))
            moments = self._state.optimizer.state.get(parameter, {})
            tensors += [(f"{key} of {name}", moment) for key, moment in moments.items()]
        return self._first_bad(tensors)

    def _first_bad(self, tensors: Sequence[tuple[str, Tensor | None]]) -> str | None:
        """Name of the first tensor that is not finite on any rank, the same on all; or None."""
        found = len(tensors)
        for index, (_, tensor) in enumerate(tensors):
            if tensor is not None and not all_finite([own(tensor)]):
                found = index
                break
        found = self._ranks.least(found)
        return None if found == len(tensors) else tensors[found][0]

    def _check_vocabulary(self, samples: Sequence[TrainSample]) -> None:
        vocab = self._state.vocab_size
        for index, sample in enumerate(samples):
            largest = int(sample.trace.token_ids.max())
            if largest >= vocab:
                raise ValueError(
                    f"sample {sample.sample_id!r} (index {index}): token id {largest} is outside "
                    f"the vocabulary of {vocab}"
                )


def _gradient(corrected: Terms, logprobs: Tensor) -> Tensor:
    """[N] of the summed token losses with respect to the log-probabilities, for the figures."""
    if not corrected.losses.requires_grad:
        return torch.zeros_like(logprobs)
    (gradient,) = torch.autograd.grad(
        corrected.losses.sum(), logprobs, retain_graph=True, allow_unused=True
    )
    return torch.zeros_like(logprobs) if gradient is None else gradient
