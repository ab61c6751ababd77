"""A request of ours as vLLM's `SamplingParams`, and what is refused.

Nothing that cuts or bends the distribution is ever set: top-p, top-k, min-p and penalties make the
reported log-probability another one than the learner's, which biases the importance ratio.
"""

from __future__ import annotations

from typing import Any

from spade_async.config.vllm import LOWEST_TEMPERATURE
from spade_async.engine.protocol import Sampling
from spade_async.engine.vllm.stream import Stream
from spade_async.errors import GenerationError
from spade_async.types import PolicyVersion

URGENT, ORDINARY = -1, 0
"""Priorities; vLLM's scheduler takes the lower one first."""


def check_sampling(sampling: Sampling) -> None:
    """Refuse what vLLM would change silently, or does not have.

    Raises:
        GenerationError: a temperature above 0 and below what vLLM knows; weights by name.
    """
    temperature = sampling.temperature
    if sampling.version is not None:
        raise GenerationError(
            f"weights {PolicyVersion.unpack(sampling.version)} were asked for by name: vLLM "
            'holds one weight set; set async.in_flight="swap"'
        )
    if temperature < 0.0 or 0.0 < temperature < LOWEST_TEMPERATURE:
        raise GenerationError(
            f"temperature={temperature} must be 0 (greedy) or at least {LOWEST_TEMPERATURE}, below "
            "which vLLM samples at another one"
        )


def sampling_params(stream: Stream) -> Any:
    """For what is missing of a request."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    sampling = stream.sampling
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        max_tokens=sampling.max_new_tokens - len(stream.tokens),
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=True,
        seed=stream.seed,
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def scoring_params(*, whole_vocabulary: bool) -> Any:
    """For the log-probabilities of a prompt; the one token that is sampled is not looked at."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0,
        max_tokens=1,
        ignore_eos=True,
        prompt_logprobs=-1 if whole_vocabulary else 0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
