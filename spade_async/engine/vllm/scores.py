"""Log-probabilities of a prompt's tokens from what vLLM gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spade_async.errors import GenerationError


def prompt_scores(
    found: Any, token_ids: Sequence[int], temperature: float | None
) -> NDArray[np.float32]:
    """[L - 1] log-probability of each token but the first.

    Args:
        found: vLLM's `FlatLogprobs` of the prompt; for a temperature, of the whole vocabulary.
        token_ids: [L] the prompt.
        temperature: None for 1. Another one is applied here: a log-probability differs from its
            logit by the same number at each token of a place, which normalising takes out.

    Raises:
        GenerationError: the answer is of another prompt.
    """
    scores = np.zeros(len(token_ids) - 1, dtype=np.float32)
    if len(found.start_indices) != len(token_ids):
        raise GenerationError(f"vLLM scored {len(found.start_indices)} of {len(token_ids)} tokens")
    for place, token in enumerate(token_ids[1:], 1):
        start, end = found.start_indices[place], found.end_indices[place]
        ids = found.token_ids[start:end]
        if token not in ids:
            raise GenerationError(f"vLLM scored other tokens than those of the prompt at {place}")
        which = ids.index(token)
        logprobs = np.asarray(found.logprobs[start:end], dtype=np.float64)
        if temperature is not None:
            # The first entry is the prompt's own token, which comes again in its place.
            first = {i: n for n, i in reversed(list(enumerate(ids)))}
            logits = logprobs[list(first.values())] / temperature
            scores[place - 1] = logprobs[which] / temperature - _log_sum(logits)
        else:
            scores[place - 1] = logprobs[which]
    return scores


def _log_sum(logits: NDArray[np.float64]) -> float:
    top = float(logits.max())
    return top + float(np.log(np.exp(logits - top).sum()))
