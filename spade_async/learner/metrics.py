"""Figures of one update, as the tags that go into a `StepReport`.

A quantity that does not exist this step (no agent tokens, nothing computed) is absent, never 0.
"""

from __future__ import annotations

import logging
import math

import numpy as np
import torch
from torch import Tensor

from spade_async.grpo.batch import ROLE_NUMBERS, MicroBatch
from spade_async.grpo.correction import log_ratios, ratio_stats, stats_by
from spade_async.types import Role

log = logging.getLogger(__name__)


class TokenFigures:
    """Per-token values of the micro-batches of one step."""

    def __init__(self, tis_cap: float):
        self._tis_cap = tis_cap
        self._log_ratio: list[np.ndarray] = []
        self._entropy: list[np.ndarray] = []
        self._roles: list[np.ndarray] = []
        self._staleness: list[np.ndarray] = []
        self._kl: list[np.ndarray] = []

    def add(self, micro: MicroBatch, learner_logprobs: Tensor, entropy: Tensor) -> None:
        """Keep one micro-batch's trained tokens."""
        self._log_ratio.append(log_ratios(learner_logprobs, micro.generator_logprobs))
        self._entropy.append(entropy.numpy(force=True))
        self._roles.append(micro.roles.numpy(force=True))
        self._staleness.append(micro.staleness.numpy(force=True))

    def add_kl_to_start(self, estimates: Tensor) -> None:
        """Keep agent tokens' estimates of KL(policy || start)."""
        self._kl.append(estimates.numpy(force=True))

    def metrics(self) -> dict[str, float]:
        """Tags of the ratio, entropy and KL figures over the computed tokens."""
        found: dict[str, float] = {}
        if self._kl and sum(a.size for a in self._kl):
            found["learner/kl_to_start"] = float(np.concatenate(self._kl).mean())
        if not self._log_ratio:
            return found
        log_ratio = np.concatenate(self._log_ratio)
        entropy = np.concatenate(self._entropy)
        roles = np.concatenate(self._roles)
        stats = ratio_stats(log_ratio, self._tis_cap)
        if stats is None:
            return found
        found["learner/ratio_mean"] = stats.ratio_mean
        found["learner/ratio_max"] = stats.ratio_max
        found["learner/clip_share"] = stats.clip_share
        found["learner/ess"] = stats.ess
        found["learner/kl_generator"] = stats.kl_k3
        by_role = stats_by(log_ratio, roles, self._tis_cap)
        for role in Role:
            number = ROLE_NUMBERS[role]
            if number in by_role:
                found[f"learner/ratio_mean_{role}"] = by_role[number].ratio_mean
                found[f"learner/entropy_{role}"] = float(entropy[roles == number].mean())
        if log.isEnabledFor(logging.DEBUG):
            staleness = np.concatenate(self._staleness)
            for age, at_age in stats_by(log_ratio, staleness, self._tis_cap).items():
                log.debug("staleness=%d %s", age, at_age)
        return found


def finite_only(metrics: dict[str, float]) -> dict[str, float]:
    """Metrics without NaN and infinities: a number that does not exist is absent."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def all_finite(tensors: list[Tensor]) -> bool:
    """Whether every element of every tensor is finite."""
    return all(bool(torch.isfinite(t).all()) for t in tensors)
