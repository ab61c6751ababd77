"""Random training samples for a tiny model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spade_async.grpo.samples import TrainSample, pack
from spade_async.transport.messages import TrainingBatch
from spade_async.types import NO_VERSION, Role, TokenTrace


def make_sample(
    sample_id: str,
    *,
    role: Role = Role.AGENT,
    advantage: float = 1.0,
    staleness: int = 0,
    token_ids: Sequence[int] = (5, 6, 7, 8),
    loss_mask: Sequence[int] = (0, 0, 1, 1),
    logprobs: Sequence[float] | None = None,
    version: int = 0,
) -> TrainSample:
    mask = np.array(loss_mask, dtype=np.uint8)
    reported = np.where(mask, -3.0, 0.0) if logprobs is None else np.array(logprobs)
    trace = TokenTrace(
        token_ids=np.array(token_ids, dtype=np.int32),
        loss_mask=mask,
        generator_logprobs=reported.astype(np.float32),
        versions=np.where(mask, version, NO_VERSION).astype(np.int64),
    )
    return TrainSample(sample_id, role, advantage, staleness, trace)


def random_samples(
    count: int, *, seed: int = 0, vocab: int = 64, longest: int = 20
) -> list[TrainSample]:
    """Samples of both roles with random lengths, masks (several turns) and advantages."""
    rng = np.random.default_rng(seed)
    samples = []
    for index in range(count):
        length = int(rng.integers(4, longest + 1))
        mask = rng.integers(0, 2, length)
        mask[0], mask[length // 2] = 0, 1
        samples.append(
            make_sample(
                f"s{seed}-{index}",
                role=Role.DESIGNER if index % 3 == 0 else Role.AGENT,
                advantage=float(rng.normal()),
                staleness=int(rng.integers(0, 4)),
                token_ids=rng.integers(3, vocab, length).tolist(),
                loss_mask=mask.tolist(),
                logprobs=np.where(mask, rng.normal(-3.5, 0.5, length), 0.0).tolist(),
            )
        )
    return samples


def make_batch(
    samples: Sequence[TrainSample], step: int, *, branch: int = 0, checkpoint: bool = False
) -> TrainingBatch:
    return TrainingBatch(branch=branch, step=step, checkpoint=checkpoint, **pack(samples))
