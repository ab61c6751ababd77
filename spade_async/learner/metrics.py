"""Figures of one update, as the tags that go into a `StepReport`.

A quantity that does not exist this step (no agent tokens, nothing computed) is absent, never 0.
"""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spade_async.grpo.batch import ROLE_NUMBERS, MicroBatch
from spade_async.grpo.correction import Terms, log_ratios, ratio_stats, stats_by
from spade_async.grpo.correction.report import TokenColumns, report
from spade_async.learner.experts import Load
from spade_async.learner.ranks import Ranks
from spade_async.types import Role

log = logging.getLogger(__name__)


class TokenFigures:
    """Per-token values of the micro-batches of one step."""

    def __init__(self, cap: float | None = None):
        """Start empty.

        Args:
            cap: truncation of the weights, for the figures per age in the log.
        """
        self._cap = math.inf if cap is None else cap
        self._columns: dict[str, list[np.ndarray]] = defaultdict(list)
        self._kl: list[np.ndarray] = []
        self.sample_order: list[tuple[str, int]] = []
        """Id and trained tokens of each computed sample, in the order of the columns."""
        self._plan: dict[str, float] = {}
        self.load: Load | None = None
        """Choices of the routers of a model with experts."""

    def planned(self, read: int, padded: int, passes: int) -> None:
        """Note the plan of the micro-batches.

        Args:
            read: tokens that the model must read.
            padded: tokens that it reads, padding included.
            passes: micro-batches.
        """
        if padded:
            self._plan = {
                "learner/padding_share": 1.0 - read / padded,
                "learner/micro_batches": float(passes),
            }

    def add(
        self,
        micro: MicroBatch,
        learner_logprobs: Tensor,
        entropy: Tensor,
        terms: Terms,
        gradient: Tensor,
    ) -> None:
        """Keep one micro-batch's trained tokens.

        Args:
            micro: the tokens.
            learner_logprobs: [N]
            entropy: [N]
            terms: what the correction rule made of them.
            gradient: [N] of the summed token losses, with respect to the log-probabilities.
        """
        keep = self._columns
        keep["log_ratio"].append(log_ratios(learner_logprobs, micro.generator_logprobs))
        keep["entropy"].append(entropy.numpy(force=True))
        keep["roles"].append(micro.roles.numpy(force=True))
        keep["ages"].append(micro.staleness.numpy(force=True))
        keep["raw"].append(terms.raw.numpy(force=True))
        keep["used"].append(terms.used.numpy(force=True))
        keep["logprobs"].append(learner_logprobs.numpy(force=True))
        keep["gradient"].append(gradient.numpy(force=True))
        keep["advantages"].append(micro.advantages.numpy(force=True))

    def add_kl_to_start(self, estimates: Tensor) -> None:
        """Keep agent tokens' estimates of KL(policy || start)."""
        self._kl.append(estimates.numpy(force=True))

    def by_sample(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Log-probabilities and used weights of the computed samples; see `sample_order`."""
        if not self._columns:
            return {}
        ends = np.cumsum([count for _, count in self.sample_order])[:-1]
        logprobs, used = (
            np.split(np.concatenate(self._columns[name]), ends) for name in ("logprobs", "used")
        )
        names = [sample_id for sample_id, _ in self.sample_order]
        return dict(zip(names, zip(logprobs, used, strict=True), strict=True))

    def gathered(self, ranks: Ranks) -> TokenFigures:
        """The figures of all ranks; the same on each. The plan is of the whole step on each."""
        if ranks.is_alone:
            return self
        columns = {name: np.concatenate(parts) for name, parts in self._columns.items()}
        if self._kl:
            columns["kl"] = np.concatenate(self._kl)
        if self.load is not None:
            columns["chosen"] = self.load.chosen_LE.ravel()
            columns["probability"] = self.load.probability_LE.ravel()
        facts: dict[str, Any] = {
            "load": None
            if self.load is None
            else [self.load.tokens, self.load.given, self.load.changed],
            "order": self.sample_order,
            "columns": {name: (str(c.dtype), c.size) for name, c in columns.items()},
        }
        head = json.dumps(facts).encode()
        mine = len(head).to_bytes(8, "little") + head + b"".join(
            np.ascontiguousarray(c).tobytes() for c in columns.values()
        )  # fmt: skip
        found = TokenFigures(None if math.isinf(self._cap) else self._cap)
        found._plan = self._plan
        if self.load is not None:
            found.load = Load(*self.load.chosen_LE.shape)
        for data in ranks.gather(mine):
            begin = 8 + int.from_bytes(data[:8], "little")
            facts = json.loads(data[8:begin])
            found.sample_order += [(name, count) for name, count in facts["order"]]
            for name, (dtype, size) in facts["columns"].items():
                column = np.frombuffer(data, dtype=dtype, count=size, offset=begin)
                begin += column.nbytes
                if name in ("chosen", "probability"):
                    assert found.load is not None, "ranks of one model"
                    sums = getattr(found.load, f"{name}_LE")
                    sums += column.reshape(sums.shape)
                else:
                    (found._kl if name == "kl" else found._columns[name]).append(column)
            if found.load is not None:
                tokens, given, changed = facts["load"]
                found.load.tokens += tokens
                found.load.given += given
                found.load.changed += changed
        return found

    def tokens(self) -> TokenColumns | None:
        """The computed tokens as columns; None when there were none."""
        if not self._columns:
            return None
        column = {name: np.concatenate(parts) for name, parts in self._columns.items()}
        double = {
            name: column[name].astype(np.float64)
            for name in ("log_ratio", "raw", "used", "gradient", "advantages")
        }
        return TokenColumns(**double, ages=column["ages"])

    def metrics(self) -> dict[str, float]:
        """Tags of the ratio, entropy, KL and correction figures over the computed tokens."""
        found = dict(self._plan)
        if self.load is not None:
            found |= self.load.metrics()
        if self._kl and sum(a.size for a in self._kl):
            found["learner/kl_to_start"] = float(np.concatenate(self._kl).mean())
        tokens = self.tokens()
        if tokens is None:
            return found
        found |= report(tokens)
        entropy, roles = (np.concatenate(self._columns[name]) for name in ("entropy", "roles"))
        for role in Role:
            chosen = roles == ROLE_NUMBERS[role]
            if chosen.any():
                found[f"learner/entropy_{role}"] = float(entropy[chosen].mean())
        is_known = np.isfinite(tokens.log_ratio)
        return found | self._ratios(
            tokens.log_ratio[is_known].astype(np.float32), roles[is_known], tokens.ages[is_known]
        )

    def _ratios(
        self, log_ratio: NDArray[np.float32], roles: np.ndarray, ages: np.ndarray
    ) -> dict[str, float]:
        """Figures of the plain token ratios; none without the generator's log-probabilities."""
        found: dict[str, float] = {}
        stats = ratio_stats(log_ratio, self._cap)
        if stats is None:
            return found
        found["learner/ratio_mean"] = stats.ratio_mean
        found["learner/ratio_max"] = stats.ratio_max
        found["learner/kl_generator"] = stats.kl_k3
        by_role = stats_by(log_ratio, roles, self._cap)
        for role in Role:
            if ROLE_NUMBERS[role] in by_role:
                found[f"learner/ratio_mean_{role}"] = by_role[ROLE_NUMBERS[role]].ratio_mean
        if log.isEnabledFor(logging.DEBUG):
            for age, at_age in stats_by(log_ratio, ages, self._cap).items():
                log.debug("staleness=%d %s", age, at_age)
        return found


def finite_only(metrics: dict[str, float]) -> dict[str, float]:
    """Metrics without NaN and infinities: a number that does not exist is absent."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def all_finite(tensors: list[Tensor]) -> bool:
    """Whether every element of every tensor is finite."""
    return all(bool(torch.isfinite(t).all()) for t in tensors)
