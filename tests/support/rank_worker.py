"""One rank of a learner's steps: ``torchrun ... -m tests.support.rank_worker FOLDER OUT JSON``.

JSON: {"learner": {...}, "steps": [from, to], "root": folder or null, "resume": name or null}. OUT
gets rank 0's whole weights, losses and figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from spade_async.config.schema import Config
from spade_async.learner.checkpoint import load_checkpoint, save_checkpoint
from spade_async.learner.ranks import join, leave
from spade_async.learner.state import LearnerState, load_start_model
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


def main() -> int:
    """Be one rank; rank 0 saves what was found."""
    folder, out, plan = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    me = join()
    found = run_steps(folder, plan)
    if me.is_leader:
        torch.save(found, out)
    leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
