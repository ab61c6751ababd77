"""Checkpoints: an ordinary Hugging Face folder plus the optimiser, committed by rename.

The Auto classes of transformers load it as it is. No pickle: tensors are safetensors, the rest
JSON. How a folder is committed, and which are removed: `checkpoint_folder.py`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from spade_async.config.schema import LearnerConfig
from spade_async.errors import WeightsError, boundary
from spade_async.learner.checkpoint_folder import (
    SCHEMA,
    STATE_FACTS,
    checkpoint_name,
    committing,
)
from spade_async.learner.state import LearnerState
from spade_async.types import PolicyVersion

STATE_TENSORS = "learner_state.safetensors"
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps per parameter."""

_TOKENIZER_FILE = re.compile(
    r"tokenizer.*|special_tokens_map\.json|added_tokens\.json|vocab\..*|merges\.txt|"
    r"chat_template.*|.*\.model"
)
"""Files of the start model's folder that belong to its tokenizer."""


def save_checkpoint(root: Path, state: LearnerState, tokenizer_folder: Path) -> str:
    """Write the state's checkpoint durably; returns its folder name under `root`.

    Args:
        root: the run's ``checkpoints/``; made when missing.
        state: model, optimiser and version to write.
        tokenizer_folder: start model folder, whose tokenizer files are copied.

    Raises:
        WeightsError: it cannot be written (full disk, permission); nothing of that name exists.
    """
    name = checkpoint_name(state.version)
    what = f"writing checkpoint {name} to {root}"
    with boundary(WeightsError, what), committing(root, name) as folder:
        write_state(folder, state, tokenizer_folder)
    return name


def write_state(folder: Path, state: LearnerState, tokenizer_folder: Path) -> None:
    """Write all files of a checkpoint into a folder; not durable by itself."""
    state.model.save_pretrained(folder)
    _copy_tokenizer(tokenizer_folder, folder)
    save_file(_state_tensors(state), folder / STATE_TENSORS)
    if state.critic is not None:
        state.critic.save(folder)
    facts = {"schema": SCHEMA, "branch": state.version.branch, "step": state.version.step}
    (folder / STATE_FACTS).write_text(json.dumps(facts, indent=2) + "\n")


def load_checkpoint(folder: Path, config: LearnerConfig) -> LearnerState:
    """Restore model, optimiser and random state to the last bit; the version is the stored one.

    Raises:
        WeightsError: the folder is missing, damaged, or of another schema.
    """
    if not folder.is_dir():
        raise WeightsError(f"checkpoint {folder} does not exist: resume from another run folder")
    with _or_fall_back(folder):
        facts = json.loads((folder / STATE_FACTS).read_text())
    if facts.get("schema") != SCHEMA:
        raise WeightsError(
            f"checkpoint {folder} has schema {facts.get('schema')}, this code reads {SCHEMA}: "
            "use the version that wrote it"
        )
    with _or_fall_back(folder):
        version = PolicyVersion(int(facts["branch"]), int(facts["step"]))
        state = LearnerState.create(folder, config, version)
        tensors = load_file(folder / STATE_TENSORS)
        _restore(state, tensors)
    if state.critic is not None:
        state.critic.load(folder)
    return state


@contextmanager
def _or_fall_back(folder: Path) -> Iterator[None]:
    """What is wrong with a checkpoint, and how to go on without it."""
    try:
        with boundary(WeightsError, f"checkpoint {folder} cannot be loaded"):
            yield
    except WeightsError as cause:
        raise WeightsError(
            f"{cause}; move {folder.name} away to fall back to the checkpoint before it"
        ) from cause


def _state_tensors(state: LearnerState) -> dict[str, Tensor]:
    tensors = {"rng.torch": torch.get_rng_state()}
    for name, parameter in state.parameters.items():
        for key, value in state.optimizer.state.get(parameter, {}).items():
            tensors[f"{key}.{name}"] = value.detach().contiguous()
    return tensors


def _restore(state: LearnerState, tensors: dict[str, Tensor]) -> None:
    torch.set_rng_state(tensors.pop("rng.torch"))
    known = {f"{key}.{name}": (key, p) for name, p in state.parameters.items() for key in _MOMENTS}
    for full_name, value in tensors.items():
        if full_name not in known:
            raise WeightsError(f"optimiser state {full_name!r} fits no parameter of the model")
        key, parameter = known[full_name]
        if key != "step" and value.shape != parameter.shape:
            raise WeightsError(f"optimiser state {full_name!r} has shape {tuple(value.shape)}")
        # A copy of its own: loaded tensors map the file, with an alignment that may change the
        # last bit of a sum, and keep a removed checkpoint's disk space.
        state.optimizer.state[parameter][key] = value.clone()
    missing = [n for n in known if tensors and n not in tensors]
    if missing:
        raise WeightsError(f"optimiser state {missing[0]!r} is missing")


def _copy_tokenizer(source: Path, target: Path) -> None:
    for path in source.iterdir():
        if path.is_file() and _TOKENIZER_FILE.fullmatch(path.name):
            shutil.copyfile(path, target / path.name)
