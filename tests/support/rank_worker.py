"""One rank of a learner's steps: ``torchrun ... -m tests.support.rank_worker FOLDER OUT JSON``.

JSON: {"learner": {...}, "steps": [from, to], "root": folder or null, "resume": name or null}. OUT
gets rank 0's whole weights, losses and figures. With "gradient_of", the seed of a step, it gets
that step's loss and gradient instead; "double" computes them in float64.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import spade_async.learner.state as state_module
from spade_async.config.schema import Config
from spade_async.learner.checkpoint import load_checkpoint, save_checkpoint
from spade_async.learner.metrics import TokenFigures
from spade_async.learner.ranks import join, leave
from spade_async.learner.sharding import whole
from spade_async.learner.state import LearnerState, load_model, load_start_model
from spade_async.learner.update import Updater
from spade_async.types import PolicyVersion
from tests.support.train_samples import random_samples


def run_ranks(world: int, folder: Path, out: Path, **plan: Any) -> dict[str, Any]:
    """Run the steps in `world` processes under torchrun; what rank 0 found."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
         str(world), "-m", "tests.support.rank_worker", str(folder), str(out), json.dumps(plan)],
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    found: dict[str, Any] = torch.load(out)
    return found


def run_steps(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Train the steps of the plan and write a checkpoint, as one of the ranks or alone."""
    torch.set_num_threads(1)
    config = Config.model_validate({"learner": plan["learner"]})
    if plan.get("resume"):
        state = load_checkpoint(Path(plan["root"]) / plan["resume"], config.learner)
    else:
        state = LearnerState.create(folder, config.learner, PolicyVersion(0, 0))
    updater = Updater(state, config, load_start_model(config, folder))
    metrics = {}
    learned = {}
    for step in range(*plan["steps"]):
        samples = random_samples(15, seed=step)
        result = updater.update(samples, step)
        assert result.applied, (result.reason, result.skipped)
        state.version = PolicyVersion(0, step)
        metrics[step] = result.metrics
        learned[step] = torch.from_numpy(result.learned.logprobs)
    if plan.get("root"):
        save_checkpoint(Path(plan["root"]), state, folder)
    return {
        "weights": state.whole_tensors(),
        "published": state.published_tensors(),
        "metrics": metrics,
        "learned": learned,
    }


def step_gradient(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Loss and whole gradient of one step, before it is clipped, as one of the ranks or alone."""
    torch.set_num_threads(1)
    config = Config.model_validate({"learner": plan["learner"]})
    dtype = torch.float64 if plan["double"] else torch.float32
    # Weights are cut as they are made, so what makes them has to make them wide.
    with mock.patch.object(state_module, "load_model", lambda *a: load_model(*a).to(dtype)):
        state = LearnerState.create(folder, config.learner, PolicyVersion(0, 0))
        start = load_start_model(config, folder)
    updater = Updater(state, config, start)
    loss = updater.accumulate(random_samples(15, seed=plan["gradient_of"]), TokenFigures(2.0))
    grads = [p.grad for p in state.parameters.values() if p.grad is not None]
    return {"loss": loss, "gradient": torch.cat([whole(g).flatten() for g in grads])}


def main() -> int:
    """Be one rank; rank 0 saves what was found."""
    folder, out, plan = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    me = join()
    found = step_gradient(folder, plan) if "gradient_of" in plan else run_steps(folder, plan)
    if me.is_leader:
        torch.save(found, out)
    leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
