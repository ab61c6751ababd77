"""Checkpoints: an ordinary Hugging Face folder plus the optimiser, committed by rename.

A folder under ``checkpoints/`` with a checkpoint's name is whole and on disk: it is written under
a hidden name, every file is synced, then it is renamed and the parent synced. The Auto classes of
transformers load it as it is. No pickle: tensors are safetensors, the rest JSON.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from spade_async.config.schema import LearnerConfig
from spade_async.errors import WeightsError, boundary
from spade_async.learner.state import LearnerState
from spade_async.types import PolicyVersion

SCHEMA = 1
"""Version of the learner's own files in a checkpoint."""

STATE_TENSORS = "learner_state.safetensors"
STATE_FACTS = "learner_state.json"
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps per parameter."""

_NAME = re.compile(r"branch-(\d+)-step-(\d+)")
_HIDDEN = (".new-", ".old-")
_TOKENIZER_FILE = re.compile(
    r"tokenizer.*|special_tokens_map\.json|added_tokens\.json|vocab\..*|merges\.txt|"
    r"chat_template.*|.*\.model"
)
"""Files of the start model's folder that belong to its tokenizer."""


def checkpoint_name(version: PolicyVersion) -> str:
    """Folder name of a version's checkpoint, e.g. ``branch-0-step-12``."""
    return f"branch-{version.branch}-step-{version.step}"


def checkpoint_version(name: str) -> PolicyVersion | None:
    """Inverse of `checkpoint_name`; None for any other name."""
    found = _NAME.fullmatch(name)
    return PolicyVersion(int(found[1]), int(found[2])) if found else None


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
    with boundary(WeightsError, f"writing checkpoint {name} to {root}"):
        root.mkdir(parents=True, exist_ok=True)
        temporary = root / f".new-{name}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        state.model.save_pretrained(temporary)
        _copy_tokenizer(tokenizer_folder, temporary)
        save_file(_state_tensors(state), temporary / STATE_TENSORS)
        facts = {"schema": SCHEMA, "branch": state.version.branch, "step": state.version.step}
        (temporary / STATE_FACTS).write_text(json.dumps(facts, indent=2) + "\n")
        for path in temporary.iterdir():
            _sync(path)
        _sync(temporary)
        _discard(root, name)
        os.rename(temporary, root / name)
        _sync(root)
    return name


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


def sweep(root: Path) -> None:
    """Remove what a killed learner left half written or half removed."""
    if not root.is_dir():
        return
    for path in root.iterdir():
        if path.name.startswith(_HIDDEN):
            shutil.rmtree(path, ignore_errors=True)


class Retention:
    """Which checkpoints are removed once a newer one is durable.

    The newest `keep` stay. What the ledger names at the start (`protected`) also stays until two
    newer ones of this process exist: the ledger commits to a checkpoint only after its report, so
    the last but one may still be the one it falls back to.
    """

    def __init__(self, root: Path, keep: int, protected: Collection[str]):
        self._root = root
        self._keep = keep
        self._protected = frozenset(protected)
        self._made: list[str] = []
        names = (p.name for p in root.iterdir()) if root.is_dir() else iter(())
        found = [(v.step, v.branch, n) for n in names if (v := checkpoint_version(n))]
        self._older = [name for _, _, name in sorted(found)]

    def added(self, name: str) -> list[str]:
        """Note a durable checkpoint and remove what is no longer needed; returns their names."""
        if name in self._older:
            self._older.remove(name)
        self._made.append(name)
        removed = []
        for candidate in self._older + self._made[:-2]:
            if len(self._older) + len(self._made) <= self._keep:
                break
            if candidate in self._protected and len(self._made) < 2:
                continue
            _discard(self._root, candidate)
            (self._older if candidate in self._older else self._made).remove(candidate)
            removed.append(candidate)
        return removed


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


def _discard(root: Path, name: str) -> None:
    """Remove a checkpoint so that a kill in between leaves no half one under its name."""
    if not (root / name).exists():
        return
    hidden = root / f".old-{name}"
    shutil.rmtree(hidden, ignore_errors=True)
    os.rename(root / name, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
