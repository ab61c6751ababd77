"""What the learner said of each trained token of a batch, for people who look at samples later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spade_async.grpo.samples import TrainSample
from spade_async.learner.metrics import TokenFigures


def _none() -> NDArray[np.float32]:
    return np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class LearnedTokens:
    """The trained tokens of a batch, sample after sample; NaN where nothing was computed."""

    logprobs: NDArray[np.float32] = field(default_factory=_none)
    """[N] under the weights before the step."""
    weights: NDArray[np.float32] = field(default_factory=_none)
    """[N] importance weights after clamping and masking."""

    @classmethod
    def of(cls, samples: Sequence[TrainSample], figures: TokenFigures) -> LearnedTokens:
        """Put the figures, which are in the order of the micro-batches, into the batch's order."""
        found = figures.by_sample()
        if not found:
            return cls()
        logprobs, weights = [], []
        for sample in samples:
            nothing = np.full(sample.trace.num_trained_tokens, np.nan, np.float32)
            of_sample = found.get(sample.sample_id, (nothing, nothing))
            logprobs.append(of_sample[0])
            weights.append(of_sample[1])
        return cls(
            np.concatenate(logprobs).astype(np.float32), np.concatenate(weights).astype(np.float32)
        )
