"""Runs a batch that was set aside again, alone, on the CPU; nothing in the run folder changes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers.utils import logging as transformers_logging

from spade_async.config.load import load_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.errors import RunFolderError, WeightsError
from spade_async.learner.checkpoint import load_checkpoint
from spade_async.learner.diagnose import Diagnosis, diagnose
from spade_async.learner.quarantine import read_back, read_facts, state_folder
from spade_async.learner.state import load_start_model
from spade_async.learner.update import Updater
from spade_async.transport.messages import TrainingBatch


@dataclass(frozen=True, slots=True)
class Replay:
    """A batch, what was said of it then, and what it does now."""

    path: Path
    batch: TrainingBatch
    weights_before: str
    reason_then: str
    diagnosis: Diagnosis

    @property
    def is_reproduced(self) -> bool:
        """Whether the update is not finite here either."""
        return self.diagnosis.reason is not None


def find_batch(run_dir: Path, name: str) -> Path:
    """Path of a batch set aside, from any name a user may give it: "batch-0-12", its npz, "12".

    Raises:
        RunFolderError: there is none of that name; says which there are.
    """
    root = RunFolder(run_dir).quarantine
    path = root / f"{Path(name).name.removesuffix('.npz').removesuffix('.json')}.npz"
    if path.is_file():
        return path
    stored = sorted(p.stem for p in root.glob("batch-*.npz"))
    of_step = [stem for stem in stored if name.isdigit() and stem.endswith(f"-{name}")]
    if len(of_step) == 1:
        return root / f"{of_step[0]}.npz"
    known = f"there is {', '.join(stored)}" if stored else "none was set aside"
    raise RunFolderError(f"{root} has no batch {name!r}: {known}")


def replay(run_dir: Path, name: str, model_folder: Path) -> Replay:
    """Load state, batch and configuration, and run the update again.

    Args:
        run_dir: the run folder.
        name: of the batch, see `find_batch`.
        model_folder: start model of the run, for `learner.kl_to_start`.

    Raises:
        RunFolderError: no such batch.
        WeightsError: a file of it is missing or damaged.
    """
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    config = load_resolved(run_dir)
    path = find_batch(run_dir, name)
    batch, facts = read_back(path), read_facts(path)
    before = state_folder(path)
    if not before.is_dir():
        raise WeightsError(
            f"{before} is gone: without the model and optimiser that the batch met it cannot be "
            f"run again; why it was set aside is in {path.with_suffix('.json')}"
        )
    state = load_checkpoint(before, config.learner)
    start = load_start_model(config, model_folder)
    found = diagnose(state, Updater(state, config, start), config, batch)
    return Replay(path, batch, str(facts["weights_before"]), str(facts["reason"]), found)
