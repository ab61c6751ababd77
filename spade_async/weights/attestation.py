"""What a weight set must show where it is loaded: digests by tensor, numbers of a probe. No torch.

The learner computes both from the model it has just trained, not from the file; they travel with
`WeightsPublished`. The probe is a few fixed sequences, made of the run's seed and the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spade_async.seeds import derive

PROBE_SEQUENCES = 2
PROBE_TOKENS = 12
"""Length of each; with the tokens of the cache probe it fits the shortest context (16)."""


def probe_sequences(run_seed: int, vocabulary_size: int) -> NDArray[np.int32]:
    """[PROBE_SEQUENCES, PROBE_TOKENS] token ids, the same for every version of a run."""
    stream = np.random.Generator(np.random.PCG64(derive(run_seed, "probe")))
    shape = (PROBE_SEQUENCES, PROBE_TOKENS)
    return stream.integers(0, vocabulary_size, shape).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Attestation:
    """The learner's own numbers for one weight set; an empty one asks for nothing."""

    tensors: dict[str, str] = field(default_factory=dict)
    """Name -> digest (`digest.tensor_digests`)."""
    ids: list[list[int]] = field(default_factory=list)
    """Sequences of the probe."""
    logprobs: list[list[float]] = field(default_factory=list)
    """Log-probability of each token but the first, at temperature 1."""

    def as_message(self) -> dict[str, Any]:
        """As it travels in a message; {} when it asks for nothing."""
        if not self.tensors and not self.ids:
            return {}
        return {"tensors": self.tensors, "ids": self.ids, "logprobs": self.logprobs}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Attestation:
        """Inverse of `as_message`."""
        return cls(**fields)
