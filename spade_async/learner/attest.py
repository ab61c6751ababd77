"""The learner's side of attestation: its own numbers for the weights it publishes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from spade_async.grpo.batch import MicroBatch
from spade_async.learner.state import LearnerState
from spade_async.weights.attestation import Attestation, probe_sequences
from spade_async.weights.digest import tensor_digests


def attestation(
    state: LearnerState, tensors: Mapping[str, Tensor], run_seed: int, *, with_probe: bool = True
) -> Attestation:
    """Digests of the present weights and a probe by the model in memory; every rank has to ask.

    A few milliseconds for a small model; the digests take about 1 s per GB.

    Args:
        state: whose weights they are.
        tensors: as they are published.
        run_seed: chooses the probe.
        with_probe: False when the generator's passes are of another precision on purpose.
    """
    digests = tensor_digests(tensors) if state.ranks.is_leader else {}
    if not with_probe:
        return Attestation(tensors=digests)
    sequences = probe_sequences(run_seed, state.vocab_size)
    return Attestation(
        tensors=digests, ids=sequences.tolist(), logprobs=_logprobs(state, sequences).tolist()
    )


@torch.no_grad()
def _logprobs(state: LearnerState, sequences: np.ndarray) -> Tensor:
    """[sequences, tokens - 1] of each token but the first, at temperature 1."""
    ids = torch.from_numpy(sequences.astype(np.int64))
    rows, columns = torch.ones_like(ids[:, 1:]).nonzero(as_tuple=True)
    targets = ids[rows, columns + 1]
    ones = torch.ones(len(targets))
    nothing = torch.zeros(len(targets), dtype=torch.int64)
    micro = MicroBatch(
        token_ids_RL=ids[:, :-1],
        attention_mask_RL=torch.ones_like(ids[:, :-1]),
        rows=rows,
        columns=columns,
        targets=targets,
        generator_logprobs=ones,
        advantages=ones,
        temperatures=ones,
        roles=nothing,
        staleness=nothing,
    )
    found: Tensor = state.scorer(micro.to(state.device), entropy_gradient=False)[0]
    return found.cpu().reshape(len(ids), -1)
