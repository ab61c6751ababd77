"""Micro-batches: samples of a step -> padded tensors under a token budget.

Which samples go together `plan.py` decides. Right padding under a causal mask: a real token never
sees padding. Which micro-batch a sample falls into never changes the gradient, because every
denominator is of the whole step (see `loss.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from spade_async.grpo.samples import TrainSample
from spade_async.types import NO_EXPERT, Role

ROLE_NUMBERS: dict[Role, int] = {Role.AGENT: 0, Role.DESIGNER: 1}
"""Row of a role in per-role tensors."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Tensors of one forward pass. R = rows, L = longest row, N = trained tokens in it.

    The flat arrays hold the trained tokens only, in row-major order of the mask. `rows` and
    `columns` give for each of them the place whose logits predict it (the token before).
    """

    token_ids_RL: Tensor
    attention_mask_RL: Tensor
    rows: Tensor
    """[N]"""
    columns: Tensor
    """[N] position of the logits that predict the token."""
    targets: Tensor
    """[N] the trained token ids."""
    generator_logprobs: Tensor
    """[N]"""
    advantages: Tensor
    """[N]"""
    temperatures: Tensor
    """[N] of the role that sampled it."""
    roles: Tensor
    """[N] `ROLE_NUMBERS`."""
    staleness: Tensor
    """[N]"""
    group_log_means: Tensor | None = None
    """[R] for GEPO: see `correction.gepo.group_log_means`."""
    experts: Tensor | None = None
    """[R, L, routers, k] experts that the engine chose for each input token; NO_EXPERT where it did
    not say. None: it said nothing."""

    def to(self, device: torch.device) -> MicroBatch:
        """The same on another device; itself when it is there already."""
        if self.token_ids_RL.device == device:
            return self
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{n: t.to(device) for n, t in tensors.items() if t is not None})


@dataclass(frozen=True, slots=True)
class Normaliser:
    """Trained tokens per role in the whole step: the denominators of the loss.

    Samples without gradient (zero advantage) count here although they are not computed.
    """

    agent_tokens: int
    designer_tokens: int

    @classmethod
    def of(cls, samples: Sequence[TrainSample]) -> Normaliser:
        """Count over all samples of the step, before any is skipped."""
        counts = dict.fromkeys(Role, 0)
        for sample in samples:
            counts[sample.role] += sample.trace.num_trained_tokens
        return cls(counts[Role.AGENT], counts[Role.DESIGNER])

    def token_scale(self, designer_weight: float) -> Tensor:
        """[2] by `ROLE_NUMBERS`: role weight / trained tokens of the role (0 without tokens)."""
        agent = 1.0 / self.agent_tokens if self.agent_tokens else 0.0
        designer = designer_weight / self.designer_tokens if self.designer_tokens else 0.0
        return torch.tensor([agent, designer], dtype=torch.float32)


def num_input_tokens(sample: TrainSample) -> int:
    """Tokens the model must read: all before the last trained one, which predicts nothing."""
    return int(np.flatnonzero(sample.trace.loss_mask)[-1])


def has_gradient(sample: TrainSample, kl_to_start: float) -> bool:
    """Whether the sample moves the weights: an advantage, or an agent sample under a KL term."""
    tokens = sample.token_advantages
    has_advantage = sample.advantage != 0.0 if tokens is None else bool(tokens.any())
    return has_advantage or (kl_to_start > 0.0 and sample.role is Role.AGENT)


def build_micro_batch(
    samples: Sequence[TrainSample],
    temperatures: dict[Role, float],
    pad_id: int = 0,
    group_log_means: Tensor | None = None,
) -> MicroBatch:
    """Pad inputs to the longest and flatten the trained tokens they predict.

    Args:
        samples: at least one, checked by `samples.check_sample`.
        temperatures: sampling temperature per role; the learner's log-probabilities must use the
            same one, or the ratio is wrong with unchanged weights.
        pad_id: any valid token id; never seen by a real token.
        group_log_means: [R] of the samples, for a rule that needs them.
    """
    longest = max(num_input_tokens(s) for s in samples)
    shape = (len(samples), longest)
    ids = np.full(shape, pad_id, dtype=np.int64)
    attention = np.zeros(shape, dtype=np.int64)
    # The rest describes the token after each input token: the one it predicts.
    mask = np.zeros(shape, dtype=bool)
    targets = np.zeros(shape, dtype=np.int64)
    logprobs = np.zeros(shape, dtype=np.float32)
    advantages = np.zeros(shape, dtype=np.float32)
    for row, sample in enumerate(samples):
        length, trace = num_input_tokens(sample), sample.trace
        ids[row, :length] = trace.token_ids[:length]
        attention[row, :length] = 1
        mask[row, :length] = trace.loss_mask[1 : length + 1].astype(bool)
        targets[row, :length] = trace.token_ids[1 : length + 1]
        logprobs[row, :length] = trace.generator_logprobs[1 : length + 1]
        of_tokens = sample.token_advantages
        advantages[row, mask[row]] = sample.advantage if of_tokens is None else of_tokens
    rows, columns = np.nonzero(mask)

    def per_token(values: list[float], dtype: type) -> Tensor:
        return torch.from_numpy(np.array(values, dtype=dtype)[rows])

    return MicroBatch(
        token_ids_RL=torch.from_numpy(ids),
        attention_mask_RL=torch.from_numpy(attention),
        rows=torch.from_numpy(rows),
        columns=torch.from_numpy(columns),
        targets=torch.from_numpy(targets[rows, columns]),
        generator_logprobs=torch.from_numpy(logprobs[rows, columns]),
        advantages=torch.from_numpy(advantages[rows, columns]),
        temperatures=per_token([temperatures[s.role] for s in samples], np.float32),
        roles=per_token([ROLE_NUMBERS[s.role] for s in samples], np.int64),
        staleness=per_token([s.staleness for s in samples], np.int64),
        group_log_means=group_log_means,
        experts=_experts(samples, shape),
    )


def _experts(samples: Sequence[TrainSample], shape: tuple[int, int]) -> Tensor | None:
    """[R, L, routers, k] of the samples that say which experts chose their tokens."""
    given = [s.trace.experts for s in samples if s.trace.experts is not None]
    if not given:
        return None
    found = np.full((*shape, *given[0].shape[1:]), NO_EXPERT, dtype=np.int16)
    for row, sample in enumerate(samples):
        if sample.trace.experts is not None:
            length = num_input_tokens(sample)
            found[row, :length] = sample.trace.experts[:length]
    return torch.from_numpy(found)
