"""The gradient of one step over several ranks: the same as if one had all samples.

The denominators are of the whole step, so they are summed over the ranks first; each rank then
divides by the same ones, and the sum of the ranks' gradients is the step's. A mean of ranks' means
would weigh a token by how few there are on its rank.

A run has one learner process; this is for a program that starts several ranks itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from spade_async.grpo.batch import Normaliser
from spade_async.grpo.samples import TrainSample
from spade_async.learner.metrics import TokenFigures
from spade_async.learner.state import LearnerState
from spade_async.learner.update import Updater


def summed(mine: Normaliser, group: dist.ProcessGroup | None = None) -> Normaliser:
    """Trained tokens per role over the samples of all ranks."""
    counts = torch.tensor([mine.agent_tokens, mine.designer_tokens], dtype=torch.int64)
    dist.all_reduce(counts, group=group)
    agent, designer = counts.tolist()
    return Normaliser(agent, designer)


def accumulate_over_ranks(
    state: LearnerState,
    updater: Updater,
    samples: Sequence[TrainSample],
    figures: TokenFigures,
    group: dist.ProcessGroup | None = None,
) -> float:
    """`Updater.accumulate` over all ranks' samples; every rank gets the same gradient and loss.

    Args:
        state: what `updater` trains; the weights are the same on all ranks.
        updater: its gradient is set.
        samples: of this rank; none is allowed. Rule "gepo" needs a group's samples on one rank.
        figures: of this rank's samples.
        group: the ranks; None: all. Its backend must take CPU tensors (gloo).
    """
    normaliser = summed(Normaliser.of(samples), group)
    loss = torch.tensor(
        updater.accumulate(samples, figures, normaliser=normaliser), dtype=torch.float64
    )
    dist.all_reduce(loss, group=group)
    for parameter in state.parameters.values():
        # Every rank takes part, also one that had nothing to train.
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        dist.all_reduce(gradient, group=group)
        parameter.grad = gradient
    return float(loss)
