"""Finds what made an update not finite: which sample, which token, which quantity.

The samples are computed one by one on the CPU, in the order of the batch; within one, the terms of
the loss in the order in which they are computed, then the gradient. The first term that is not
finite is the culprit: what follows from it is not named again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from spade_async.config.correction import RULES
from spade_async.config.schema import Config
from spade_async.grpo.batch import (
    ROLE_NUMBERS,
    MicroBatch,
    Normaliser,
    build_micro_batch,
)
from spade_async.grpo.samples import NonFiniteSample, TrainSample, unpack
from spade_async.learner.metrics import TokenFigures, all_finite
from spade_async.learner.state import LearnerState
from spade_async.learner.update import TOKEN_LOSS, Updater
from spade_async.transport.messages import TrainingBatch
from spade_async.types import Role


@dataclass(frozen=True, slots=True)
class Culprit:
    """One quantity that is not finite."""

    quantity: str
    """e.g. "learner log-probability", "advantage", "gradient of model.norm.weight"."""
    value: float
    sample_id: str | None = None
    """None: not of one sample (a weight, a sum)."""
    role: str | None = None
    token_index: int | None = None
    """Position in the sample's tokens, prompt included; None: not of one token."""
    token_id: int | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a batch does to a state."""

    reason: str | None
    """Why the whole update is not applied here; None when it is finite."""
    culprits: tuple[Culprit, ...]
    """At most one per sample, in the order of the batch."""
    loss: float | None = None
    grad_norm: float | None = None


def diagnose(
    state: LearnerState, updater: Updater, config: Config, batch: TrainingBatch
) -> Diagnosis:
    """Run the update of `batch` on `state` (which it changes) and find the culprits."""
    culprits = [
        Culprit(f"weight {name}", _bad(parameter.detach()))
        for name, parameter in state.parameters.items()
        if not all_finite([parameter.detach()])
    ]
    culprits += _bad_inputs(batch)
    try:
        rule = config.learner.correction.rule
        samples = unpack(batch, needs_logprobs=RULES[rule].uses_generator)
    except NonFiniteSample as cause:
        return Diagnosis(str(cause), tuple(culprits))
    scale = Normaliser.of(samples).token_scale(config.learner.designer_weight)
    temperatures = {
        Role.AGENT: config.agent.temperature,
        Role.DESIGNER: config.designer.temperature,
    }
    judged = updater.judged(samples)
    for sample in samples if judged is None else judged.samples:
        if updater.trains(sample):
            micro = build_micro_batch([sample], temperatures)
            found = _of_sample(state, updater, sample, micro, scale)
            if found is not None:
                culprits.append(found)
    state.optimizer.zero_grad(set_to_none=True)
    result = updater.update(samples, batch.step)
    if result.reason is not None and not culprits:
        culprits.append(Culprit(f"{result.reason} (the sum over the batch alone)", float("nan")))
    return Diagnosis(
        result.reason,
        tuple(culprits),
        result.metrics.get("learner/loss"),
        result.metrics.get("learner/grad_norm"),
    )


def _bad_inputs(batch: TrainingBatch) -> list[Culprit]:
    found = []
    for index, sample_id in enumerate(batch.sample_ids):
        advantage = float(batch.advantages[index])
        role = batch.roles[index]
        if not np.isfinite(advantage):
            found.append(Culprit("advantage", advantage, sample_id, role))
            continue
        piece = slice(int(batch.offsets[index]), int(batch.offsets[index + 1]))
        logprobs = batch.generator_logprobs[piece]
        bad = np.flatnonzero(~np.isfinite(logprobs) & (batch.loss_mask[piece] == 1))
        if bad.size:
            token = int(bad[0])
            token_id = int(batch.token_ids[piece][token])
            value = float(logprobs[token])
            found.append(
                Culprit("generator log-probability", value, sample_id, role, token, token_id)
            )
    return found


def _of_sample(
    state: LearnerState, updater: Updater, sample: TrainSample, micro: MicroBatch, scale: Tensor
) -> Culprit | None:
    terms = updater.token_terms(micro, TokenFigures(1.0))
    for quantity, values in terms.items():
        bad = torch.nonzero(~torch.isfinite(values.detach()))
        if len(bad):
            token = int(bad[0])
            return _at(quantity, float(values[token].detach()), sample, micro, token)
    losses = terms[TOKEN_LOSS] * scale[ROLE_NUMBERS[sample.role]]
    whole = _bad_gradient(state, losses.sum())
    if whole is None:
        return None
    for token in range(len(losses)):
        of_token = _bad_gradient(state, losses[token])
        if of_token is not None:
            return _at(*of_token, sample, micro, token)
    quantity, value = whole
    return Culprit(
        f"{quantity}, summed over the sample's tokens", value, sample.sample_id, sample.role.value
    )


def _at(quantity: str, value: float, sample: TrainSample, micro: MicroBatch, token: int) -> Culprit:
    # A trained token is predicted from the place before it.
    index = int(micro.columns[token]) + 1
    return Culprit(
        quantity, value, sample.sample_id, sample.role.value, index, int(micro.targets[token])
    )


def _bad_gradient(state: LearnerState, loss: Tensor) -> tuple[str, float] | None:
    """The first gradient of `loss` that is not finite and its value; else the norm of all."""
    state.optimizer.zero_grad(set_to_none=True)
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    for name, parameter in state.parameters.items():
        if parameter.grad is not None and not all_finite([parameter.grad]):
            return f"gradient of {name}", _bad(parameter.grad)
    gradients = [p.grad for p in state.parameters.values() if p.grad is not None]
    norm = float(nn.utils.get_total_norm(gradients))
    return None if math.isfinite(norm) else ("gradient norm", norm)


def _bad(tensor: Tensor) -> float:
    return float(tensor[~torch.isfinite(tensor)][0])
