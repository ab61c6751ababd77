"""What each sample of a batch did to the update: its ratio, its weight, its part of the gradient.

The gradient of a step is the sum of its samples' gradients, g = sum g_i. The share of a sample is
g_i . g / |g|^2: the shares of a batch add up to 1, and one below 0 pulled against the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spade_async.config.schema import Config
from spade_async.grpo.batch import ROLE_NUMBERS, Normaliser, build_micro_batch
from spade_async.grpo.correction.gepo import step_log_means
from spade_async.grpo.samples import TrainSample
from spade_async.learner.metrics import TokenFigures
from spade_async.learner.state import LearnerState
from spade_async.learner.update import TOKEN_LOSS, Updater
from spade_async.types import Role


@dataclass(frozen=True, slots=True)
class SampleShare:
    """One sample of a batch."""

    sample_id: str
    role: str
    age: int
    """Learner steps between its oldest token and the weights it met."""
    advantage: float
    tokens: int
    """That are trained."""
    ratio_mean: float | None
    """Learner over generator, mean over the tokens; None: the sample moves no weight, or the
    generator's log-probabilities are not known."""
    ratio_max: float | None
    weight_mean: float | None
    """Importance weight that the correction rule used, mean over the tokens; None as above."""
    grad_norm: float
    """Of its own gradient, before clipping; 0 when it moves no weight."""
    share: float | None
    """Of the batch's squared gradient norm; None when that is 0."""


@dataclass(frozen=True, slots=True)
class Shares:
    """A batch, sample by sample in its order."""

    samples: tuple[SampleShare, ...]
    loss: float
    grad_norm: float
    """Before clipping."""


def shares(
    state: LearnerState, updater: Updater, config: Config, samples: Sequence[TrainSample]
) -> Shares:
    """Compute the batch as a whole, then each sample by itself; no weight is changed."""
    judged = updater.judged(samples)
    samples = samples if judged is None else judged.samples
    loss = updater.accumulate(samples, TokenFigures())
    whole = {n: p.grad.clone() for n, p in state.parameters.items() if p.grad is not None}
    squared = float(sum((g.double() ** 2).sum() for g in whole.values()))
    scale = Normaliser.of(samples).token_scale(config.learner.designer_weight)
    temperatures = {
        Role.AGENT: config.agent.temperature,
        Role.DESIGNER: config.designer.temperature,
    }
    means = step_log_means(samples) if config.learner.correction.rule == "gepo" else None
    found = []
    for sample in samples:
        figures = TokenFigures()
        norm = dot = 0.0
        if updater.trains(sample):
            of_group = torch.tensor([means[sample.sample_id]]) if means else None
            micro = build_micro_batch([sample], temperatures, group_log_means=of_group)
            losses = updater.token_terms(micro, figures)[TOKEN_LOSS]
            state.optimizer.zero_grad(set_to_none=True)
            (losses.sum() * scale[ROLE_NUMBERS[sample.role]]).backward()  # type: ignore[no-untyped-call]
            norm, dot = _norm_and_dot(state, whole)
        found.append(_share(sample, figures, norm, dot / squared if squared > 0 else None))
    state.optimizer.zero_grad(set_to_none=True)
    return Shares(tuple(found), loss, squared**0.5)


def _norm_and_dot(state: LearnerState, whole: dict[str, Tensor]) -> tuple[float, float]:
    squared = dot = 0.0
    for name, parameter in state.parameters.items():
        if parameter.grad is not None:
            gradient = parameter.grad.double()
            squared += float((gradient**2).sum())
            dot += float((gradient * whole[name]).sum())
    return squared**0.5, dot


def _share(
    sample: TrainSample, figures: TokenFigures, norm: float, share: float | None
) -> SampleShare:
    tokens = figures.tokens()
    ratios = np.array([]) if tokens is None else np.exp(tokens.log_ratio)
    ratios = ratios[np.isfinite(ratios)]
    return SampleShare(
        sample_id=sample.sample_id,
        role=sample.role.value,
        age=sample.staleness,
        advantage=float(sample.advantage),
        tokens=sample.trace.num_trained_tokens,
        ratio_mean=float(ratios.mean()) if ratios.size else None,
        ratio_max=float(ratios.max()) if ratios.size else None,
        weight_mean=None if tokens is None else float(tokens.used.mean()),
        grad_norm=norm,
        share=share,
    )
