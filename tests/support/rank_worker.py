"""One rank of a step: ``python -m tests.support.rank_worker RANK WORLD RENDEZVOUS MODEL OUT``."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from spade_async.config.schema import Config
from spade_async.grpo.samples import TrainSample
from spade_async.learner.metrics import TokenFigures
from spade_async.learner.ranks import accumulate_over_ranks
from spade_async.learner.state import LearnerState, load_model
from spade_async.learner.update import Updater
from spade_async.types import PolicyVersion
from tests.support.train_samples import random_samples


def step_samples() -> list[TrainSample]:
    """The whole step."""
    return random_samples(15, seed=4)


def part(samples: list[TrainSample], rank: int) -> list[TrainSample]:
    """Uneven on purpose: a mean of the ranks' means would be wrong."""
    return samples[:4] if rank == 0 else samples[4:]


def make(folder: Path) -> tuple[LearnerState, Updater]:
    """The state and updater that every rank has."""
    torch.set_num_threads(1)
    config = Config.model_validate({"learner": {"kl_to_start": 0.1, "designer_weight": 0.5}})
    state = LearnerState.create(folder, config.learner, PolicyVersion(0, 0))
    return state, Updater(state, config, load_model(folder))


def gradient(state: LearnerState) -> torch.Tensor:
    """All gradients as one vector."""
    return torch.cat([p.grad.flatten() for p in state.parameters.values() if p.grad is not None])


def main() -> int:
    """Run one rank and save its loss and gradient."""
    rank, world, rendezvous, folder, out = sys.argv[1:]
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=int(rank), world_size=int(world),
        timeout=timedelta(seconds=120),
    )  # fmt: skip
    state, updater = make(Path(folder))
    samples = part(step_samples(), int(rank))
    loss = accumulate_over_ranks(state, updater, samples, TokenFigures(2.0))
    torch.save({"loss": loss, "gradient": gradient(state)}, out)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
