"""The learner's side of attestation: its own numbers for the weights it publishes."""

from __future__ import annotations

import numpy as np
import torch

from spade_async.learner.state import LearnerState
from spade_async.weights.attestation import Attestation, probe_sequences
from spade_async.weights.digest import tensor_digests


@torch.no_grad()
def attestation(state: LearnerState, run_seed: int) -> Attestation:
    """Digests and probe of the present weights, from the model in memory.

    A few milliseconds for a small model; the digests take about 1 s per GB.
    """
    sequences = probe_sequences(run_seed, state.vocab_size)
    ids = torch.from_numpy(sequences.astype(np.int64))
    logits = state.model(input_ids=ids, use_cache=False).logits[:, :-1].float()
    logprobs = torch.log_softmax(logits, dim=-1).gather(2, ids[:, 1:, None]).squeeze(2)
    return Attestation(
        tensors=tensor_digests(state.published_tensors()),
        ids=sequences.tolist(),
        logprobs=logprobs.tolist(),
    )
