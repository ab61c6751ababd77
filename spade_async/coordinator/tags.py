"""Whether the tokens of a result can be of the versions they claim.

A sample is aged, trained and compared by these tags, so one that cannot be right makes its sample
missing, with the reason; it never ends the run and is never trained.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from spade_async.coordinator.versions import VersionBook
from spade_async.transport.messages import DesignResult, EpisodeResult, no_experts
from spade_async.types import NO_EXPERT, NO_VERSION, PolicyVersion, TokenTrace

Result = TypeVar("Result", DesignResult, EpisodeResult)


def trace_of(result: Result) -> TokenTrace:
    """The tokens of a result, as its sample keeps them."""
    return TokenTrace(
        result.token_ids,
        result.loss_mask,
        result.generator_logprobs,
        result.versions,
        tuple(result.starts) if isinstance(result, EpisodeResult) else (),
        experts=result.experts if result.experts.size else None,
    )


def tag_problem(versions: VersionBook, result: Result, min_version: int) -> str | None:
    """What is wrong with a result's arrays, or None.

    Args:
        versions: every version of this run.
        result: tokens as the generator sent them.
        min_version: packed version its task asked for.
    """
    lengths = [len(a) for a in (result.token_ids, result.loss_mask, result.generator_logprobs,
                                result.versions)]  # fmt: skip
    if len(set(lengths)) != 1:
        return f"ids, mask, log-probabilities and versions have lengths {lengths}"
    experts = result.experts
    if experts.size and (experts.ndim != 3 or len(experts) != lengths[0]):
        return f"experts of shape {experts.shape} for {lengths[0]} tokens"
    if experts.size and int(experts.min()) < NO_EXPERT:
        return f"expert {int(experts.min())}"
    sampled = result.loss_mask == 1
    if isinstance(result, EpisodeResult) and result.starts:
        problem = _starts_problem(result.starts, sampled)
        if problem is not None:
            return problem
    if (result.versions[~sampled] != NO_VERSION).any():
        return "a token that nobody sampled has a version"
    for packed in np.unique(result.versions[sampled]).tolist():
        if packed == NO_VERSION:
            return "a sampled token has no version"
        if versions.ordinal(packed) is None:
            return f"version {PolicyVersion.unpack(packed)} was never published"
        if packed < min_version:
            asked = PolicyVersion.unpack(min_version)
            return f"sampled on version {PolicyVersion.unpack(packed)}, asked for {asked} or newer"
    return None


def _starts_problem(starts: list[int], sampled: NDArray[np.bool_]) -> str | None:
    """What is wrong with the places where sequences begin, or None."""
    ends = [*starts[1:], len(sampled)]
    if starts[0] != 0 or any(end <= start for start, end in zip(starts, ends, strict=True)):
        return f"sequences begin at {starts[:8]} in {len(sampled)} tokens"
    for start, end in zip(starts, ends, strict=True):
        if sampled[start] or not sampled[start:end].any():
            return f"the sequence at {start} has no prompt or nothing that was sampled"
    return None


def without_tokens(result: Result, problem: str) -> Result:
    """The same result as a missing one: nothing of it can be trained."""
    ids, mask = np.zeros(0, np.int32), np.zeros(0, np.uint8)
    logprobs, versions = np.zeros(0, np.float32), np.zeros(0, np.int64)
    gone = dataclasses.replace(
        result,
        missing_reason=f"ours: wrong tags: {problem}",
        token_ids=ids,
        loss_mask=mask,
        generator_logprobs=logprobs,
        versions=versions,
        experts=no_experts(),
    )
    if isinstance(gone, EpisodeResult):
        return dataclasses.replace(gone, episode_return=None, starts=[])
    return dataclasses.replace(gone, rejection=None)
