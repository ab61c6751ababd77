"""What every engine refuses before it works: what is not a request of its model."""

from __future__ import annotations

from collections.abc import Sequence

from spade_async.engine.protocol import Sampling
from spade_async.errors import GenerationError


def check_request(
    prompt_ids: Sequence[int],
    sampling: Sampling,
    *,
    max_context_tokens: int,
    vocabulary_size: int,
) -> None:
    """Refuse a request that cannot be sampled; nothing is cut off in silence.

    Raises:
        GenerationError: says what does not fit, and the key.
    """
    if sampling.max_new_tokens < 1 or sampling.temperature < 0:
        raise GenerationError(
            f"max_new_tokens={sampling.max_new_tokens} must be at least 1 and temperature="
            f"{sampling.temperature} at least 0"
        )
    if len(prompt_ids) + sampling.max_new_tokens > max_context_tokens:
        raise GenerationError(
            f"a prompt of {len(prompt_ids)} tokens and max_new_tokens="
            f"{sampling.max_new_tokens} do not fit model.max_context_tokens="
            f"{max_context_tokens}: shorten the prompt, lower max_new_tokens or raise the context"
        )
    check_ids(prompt_ids, vocabulary_size)


def check_ids(ids: Sequence[int], vocabulary_size: int) -> None:
    """Refuse an empty sequence, and ids that the model does not have.

    Raises:
        GenerationError: names them.
    """
    if not ids:
        raise GenerationError("a sequence of no tokens cannot be continued or scored")
    if min(ids) < 0 or max(ids) >= vocabulary_size:
        raise GenerationError(
            f"token ids {min(ids)}..{max(ids)} are outside the model's vocabulary of "
            f"{vocabulary_size}: tokenizer and model do not belong together"
        )
