"""Checkpoints: an ordinary Hugging Face folder plus the optimiser, committed by rename.

The Auto classes of transformers load it as it is, whether all weights are trained, an adapter
(merged into it, and beside it), or slices on several ranks. No pickle: tensors are safetensors, the
rest JSON. How a folder is committed, and which are removed: `checkpoint_folder.py`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from torch import Tensor

from spade_async.config.schema import LearnerConfig
from spade_async.errors import WeightsError, boundary
from spade_async.learner.adapter import ADAPTER_FOLDER, read_adapter, write_adapter
from spade_async.learner.checkpoint_folder import (
    SCHEMA,
    STATE_FACTS,
    checkpoint_name,
    committing,
    hidden_folder,
)
from spade_async.learner.moments import restore_moments, write_moments
from spade_async.learner.state import LearnerState
from spade_async.types import PolicyVersion

_TOKENIZER_FILE = re.compile(
    r"tokenizer.*|special_tokens_map\.json|added_tokens\.json|vocab\..*|merges\.txt|"
    r"chat_template.*|generation_config\.json|.*\.model"
)
"""Files of the start model's folder that belong to its tokenizer."""


def save_checkpoint(
    root: Path, state: LearnerState, tokenizer_folder: Path, name: str | None = None
) -> str:
    """Write the state's checkpoint durably; returns its folder name under `root`.

    Args:
        root: the run's ``checkpoints/``; made when missing, and the same for all ranks.
        state: model, optimiser and version to write.
        tokenizer_folder: start model folder, whose tokenizer files are copied.
        name: of the folder; None names it by the version.

    Raises:
        WeightsError: it cannot be written (full disk, permission); nothing of that name exists.
    """
    name = name or checkpoint_name(state.version)
    gathered = _Gathered(state)
    with boundary(WeightsError, f"writing checkpoint {name} to {root}"):
        if state.ranks.is_alone:
            with committing(root, name) as folder:
                gathered.write(folder, tokenizer_folder)
                write_moments(folder, state)
        else:
            _save_together(root, name, gathered, state, tokenizer_folder)
    return name


def write_state(folder: Path, state: LearnerState, tokenizer_folder: Path) -> None:
    """Write all files of a lone rank's checkpoint into a folder; not durable by itself."""
    _Gathered(state).write(folder, tokenizer_folder)
    write_moments(folder, state)


class _Gathered:
    """What is one for all ranks: the model folder, the adapter, the facts.

    Every rank has to make one, rank 0 writes.
    """

    def __init__(self, state: LearnerState) -> None:
        self._state = state
        self._weights: dict[str, Tensor] | None = None
        self._adapter: dict[str, Tensor] = {}
        if state.config.is_sharded or state.base_folder is not None:
            self._weights = state.whole_tensors()
        if state.base_folder is not None:
            self._adapter = state.adapter

    def write(self, folder: Path, tokenizer_folder: Path) -> None:
        """Write all but the optimiser."""
        state = self._state
        state.model.save_pretrained(folder, state_dict=self._weights)
        _copy_tokenizer(tokenizer_folder, folder)
        facts: dict[str, object] = {
            "schema": SCHEMA,
            "branch": state.version.branch,
            "step": state.version.step,
        }
        if state.base_folder is not None:
            write_adapter(folder / ADAPTER_FOLDER, state.model, self._adapter)
            facts["base_folder"] = str(state.base_folder)
        if state.critic is not None:
            state.critic.save(folder)
        (folder / STATE_FACTS).write_text(json.dumps(facts, indent=2) + "\n")


def _save_together(
    root: Path, name: str, gathered: _Gathered, state: LearnerState, tokenizer_folder: Path
) -> None:
    """The ranks' files side by side, committed by rank 0 when all are there.

    The ranks see one file system. When one cannot write, all raise, and nothing of that name is
    left.
    """
    ranks, hidden = state.ranks, hidden_folder(root, name)
    with ExitStack() as stack:

        def begin() -> None:
            if ranks.is_leader:
                stack.enter_context(committing(root, name))
                gathered.write(hidden, tokenizer_folder)

        ranks.together(begin)
        ranks.together(lambda: write_moments(hidden, state))
        # Commits; the others go on when the folder has its name.
        ranks.together(stack.close)


def load_checkpoint(folder: Path, config: LearnerConfig) -> LearnerState:
    """Restore model, optimiser and random state to the last bit; the version is the stored one.

    Any number of ranks can have written it.

    Raises:
        WeightsError: the folder is missing, damaged, of another schema, or of an adapter when the
            configuration has none (and the other way round).
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
    base = facts.get("base_folder")
    if (base is not None) != (config.lora.rank > 0):
        made = "without an adapter" if base is None else "with an adapter"
        raise WeightsError(
            f"checkpoint {folder} was written {made}, and learner.lora.rank={config.lora.rank}: "
            "set it as the run had it, or start a new run with this folder as model.path"
        )
    with _or_fall_back(folder):
        version = PolicyVersion(int(facts["branch"]), int(facts["step"]))
        state = LearnerState.create(folder if base is None else Path(base), config, version)
        if base is not None:
            state.adapter = read_adapter(folder / ADAPTER_FOLDER)
        restore_moments(folder, state)
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


def _copy_tokenizer(source: Path, target: Path) -> None:
    for path in source.iterdir():
        if path.is_file() and _TOKENIZER_FILE.fullmatch(path.name):
            shutil.copyfile(path, target / path.name)
