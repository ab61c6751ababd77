"""Samples <-> the arrays of a `TrainingBatch`: step 9 of the data flow.

The coordinator packs, the learner unpacks. Both ends check, because a misaligned mask or a NaN that
slips in here trains silently on the wrong thing. numpy only: the coordinator has no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spade_async.transport.messages import TrainingBatch, no_experts
from spade_async.types import Role, TokenTrace, joined_experts

NO_GROUP = -1
"""On the wire: the sample's group is not known."""


class NonFiniteSample(ValueError):
    """A trained token or an advantage is NaN or infinite: the batch must be set aside."""


class MissingLogprobs(NonFiniteSample):
    """A sample comes without the generator's log-probabilities, and the correction needs them."""


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One token sequence with what it is worth."""

    sample_id: str
    role: Role
    advantage: float
    """Group-relative; applies to every trained token of the sequence."""
    staleness: int
    """Learner steps between the oldest trained token and the step that trains it."""
    trace: TokenTrace
    group: int | None = None
    """Number of its group within the batch; samples of a group share a baseline."""
    worth: float | None = None
    """Return of the episode, pay of the design; None when the batch does not say (a critic alone
    needs it)."""
    token_advantages: NDArray[np.float32] | None = None
    """[trained tokens] of a critic; `advantage` is then their mean. None: all have `advantage`."""


_TURN = "#"
"""Between the id of a sample and the number of one of its token sequences."""


def sequences(sample: TrainSample) -> list[TrainSample]:
    """The token sequences of a sample, each to be trained as one: itself, when it is one.

    An episode with thinking is one sample and a sequence per turn. Each has the whole advantage and
    the group of the episode. The loss is a mean over tokens (see `loss.py`), so an episode weighs
    what its tokens weigh, however many sequences they lie in: it is neither divided nor counted
    more than once.
    """
    parts = sample.trace.sequences()
    if len(parts) == 1:
        return [sample]
    return [
        replace(sample, sample_id=f"{sample.sample_id}{_TURN}{number}", trace=part)
        for number, part in enumerate(parts)
    ]


def whole_ids(sequence_ids: Iterable[str]) -> list[str]:
    """Ids of the samples that these sequences are of, each once, in order."""
    return list(dict.fromkeys(name.partition(_TURN)[0] for name in sequence_ids))


def pack(samples: Sequence[TrainSample], *, finite: bool = True) -> dict[str, Any]:
    """All fields of a `TrainingBatch` that come from its samples, in input order.

    Use as ``TrainingBatch(branch=b, step=s, checkpoint=c, **pack(samples))``.

    Args:
        samples: at least one.
        finite: refuse what is not finite. The coordinator lets it pass: the learner sets such a
            batch aside, which is better than a coordinator that cannot go on.

    Raises:
        NonFiniteSample: a trained token's log-probability or an advantage is not finite.
        ValueError: no samples, or one that is malformed; the message names it and its index.
    """
    if not samples:
        raise ValueError("pack: no samples; a training batch needs at least one")
    for index, sample in enumerate(samples):
        check_sample(sample, index, finite=finite)
    lengths = [len(s.trace.token_ids) for s in samples]
    staleness = [s.staleness for s in samples]
    traces = [s.trace for s in samples]
    worths = [s.worth for s in samples]
    return {
        "sample_ids": [s.sample_id for s in samples],
        "roles": [s.role.value for s in samples],
        # All or none: a critic that lacks one says so by name.
        "worths": [] if None in worths else worths,
        "groups": [NO_GROUP if s.group is None else s.group for s in samples],
        "staleness_min": min(staleness),
        "staleness_max": max(staleness),
        "offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        "advantages": np.array([s.advantage for s in samples], dtype=np.float32),
        "staleness": np.array(staleness, dtype=np.int64),
        "token_ids": np.concatenate([t.token_ids for t in traces]).astype(np.int32),
        "loss_mask": np.concatenate([t.loss_mask for t in traces]).astype(np.uint8),
        "generator_logprobs": np.concatenate([t.generator_logprobs for t in traces]).astype(
            np.float32
        ),
        "versions": np.concatenate([t.versions for t in traces]).astype(np.int64),
        "experts": _experts(samples),
    }


def _experts(samples: Sequence[TrainSample]) -> NDArray[np.int16]:
    """[tokens of all samples, routers, k]; nothing when no engine said anything."""
    shapes = {s.trace.experts.shape[1:]: s for s in samples if s.trace.experts is not None}
    if len(shapes) > 1:
        named = " and ".join(f"{s.sample_id!r} {shape}" for shape, s in shapes.items())
        raise ValueError(f"experts of (routers, k) differ within a batch: {named}")
    found = joined_experts([(s.trace.experts, len(s.trace.token_ids)) for s in samples])
    return no_experts() if found is None else found


def unpack(batch: TrainingBatch, *, needs_logprobs: bool = True) -> list[TrainSample]:
    """Samples of a batch; arrays are views into the message's.

    Args:
        batch: as it came.
        needs_logprobs: whether the correction rule reads the generator's log-probabilities.

    Raises:
        MissingLogprobs: a sample has none, and they are needed.
        NonFiniteSample: a trained token's log-probability or an advantage is not finite.
        ValueError: lists, offsets or arrays do not fit together, or a sample is malformed.
    """
    num_samples = len(batch.sample_ids)
    _check_lengths(batch, num_samples)
    samples = []
    for index in range(num_samples):
        start, end = int(batch.offsets[index]), int(batch.offsets[index + 1])
        trace = TokenTrace(
            token_ids=batch.token_ids[start:end],
            loss_mask=batch.loss_mask[start:end],
            generator_logprobs=batch.generator_logprobs[start:end],
            versions=batch.versions[start:end],
            experts=batch.experts[start:end] if batch.experts.size else None,
        )
        sample_id, role = batch.sample_ids[index], batch.roles[index]
        group = batch.groups[index] if batch.groups else NO_GROUP
        if role not in tuple(Role):
            raise ValueError(f"sample {sample_id!r} (index {index}): unknown role {role!r}")
        sample = TrainSample(
            sample_id=sample_id,
            role=Role(role),
            advantage=float(batch.advantages[index]),
            staleness=int(batch.staleness[index]),
            trace=trace,
            group=None if group == NO_GROUP else group,
            worth=batch.worths[index] if batch.worths else None,
        )
        check_sample(sample, index, needs_logprobs=needs_logprobs)
        samples.append(sample)
    return samples


def check_sample(
    sample: TrainSample, index: int, *, finite: bool = True, needs_logprobs: bool = True
) -> None:
    """Raise on anything that would train on the wrong token or poison the step.

    Values under a zero mask are free: the loss selects by index and never reads them. An engine
    that reports no log-probabilities leaves NaN on every trained token of a sample.
    """
    trace = sample.trace
    where = f"sample {sample.sample_id!r} (index {index})"
    length = len(trace.token_ids)
    if length == 0:
        raise ValueError(f"{where}: no tokens")
    for name in ("loss_mask", "generator_logprobs", "versions"):
        found = len(getattr(trace, name))
        if found != length:
            raise ValueError(f"{where}: {name} has length {found}, token_ids has {length}")
    experts = trace.experts
    if experts is not None and (experts.ndim != 3 or len(experts) != length):
        raise ValueError(f"{where}: experts have shape {experts.shape} for {length} tokens")
    if int(trace.token_ids.min()) < 0:
        raise ValueError(f"{where}: negative token id {int(trace.token_ids.min())}")
    mask = trace.loss_mask
    if not np.isin(mask, (0, 1)).all():
        raise ValueError(f"{where}: loss_mask holds {int(mask.max())}; only 0 and 1 are allowed")
    if mask[0]:
        raise ValueError(f"{where}: loss_mask[0] is 1, but nothing predicts the first token")
    if not mask.any():
        raise ValueError(f"{where}: loss_mask is all 0; a sample without trained tokens is missing")
    if sample.staleness < 0:
        raise ValueError(f"{where}: staleness {sample.staleness} is negative")
    trained = mask.astype(bool)
    if (trace.versions[trained] < 0).any():
        raise ValueError(f"{where}: a trained token has no policy version")
    if not finite:
        return
    if not np.isfinite(sample.advantage):
        raise NonFiniteSample(f"{where}: advantage is {sample.advantage}")
    if sample.worth is not None and not np.isfinite(sample.worth):
        raise NonFiniteSample(f"{where}: it is worth {sample.worth}")
    if bool(np.isnan(trace.generator_logprobs[trained]).all()):
        if needs_logprobs:
            raise MissingLogprobs(
                f"{where}: generator_logprobs is NaN on every trained token: the engine gave none, "
                "which this correction needs; use an engine that reports them, or "
                'learner.correction.rule="none"'
            )
        return
    good = np.isfinite(trace.generator_logprobs) | ~trained
    if not good.all():
        bad = int(np.argmin(good))
        raise NonFiniteSample(
            f"{where}: generator_logprobs[{bad}] is {trace.generator_logprobs[bad]} on a "
            f"trained token"
        )


def _check_lengths(batch: TrainingBatch, num_samples: int) -> None:
    where = f"batch {batch.branch}.{batch.step}"
    optional = [name for name in ("groups", "worths") if getattr(batch, name)]
    for name in ("roles", "advantages", "staleness", *optional):
        found = len(getattr(batch, name))
        if found != num_samples:
            raise ValueError(f"{where}: {name} has length {found} for {num_samples} samples")
    offsets = batch.offsets
    if len(offsets) != num_samples + 1:
        raise ValueError(f"{where}: offsets has length {len(offsets)} for {num_samples} samples")
    if offsets[0] != 0:
        raise ValueError(f"{where}: offsets start at {int(offsets[0])}, not at 0")
    steps = np.diff(offsets)
    if (steps <= 0).any():
        bad = int(np.argmax(steps <= 0))
        raise ValueError(
            f"sample {batch.sample_ids[bad]!r} (index {bad}): offsets go from "
            f"{int(offsets[bad])} to {int(offsets[bad + 1])}; they must grow"
        )
    for name in ("token_ids", "loss_mask", "generator_logprobs", "versions"):
        found = len(getattr(batch, name))
        if found != int(offsets[-1]):
            raise ValueError(f"{where}: {name} has length {found}, offsets end at {offsets[-1]}")
    if batch.experts.size and (batch.experts.ndim != 3 or len(batch.experts) != int(offsets[-1])):
        raise ValueError(
            f"{where}: experts have shape {batch.experts.shape}, offsets end at {offsets[-1]}"
        )
