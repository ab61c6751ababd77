"""Whether disk and shared memory can hold what a run makes of a model of this size."""

from __future__ import annotations

import shutil
from pathlib import Path

from spade_async.config.schema import Config
from spade_async.errors import RunFolderError
from spade_async.supervisor.model_folder import weight_files
from spade_async.weights.folder import check_shared_memory
from spade_async.weights.header import folder_shapes

_BYTES_PER_CHECKPOINT_BYTE = 4
"""Weights and two optimiser moments in fp32, and room for the one being written."""


def check_disk_room(config: Config, root: Path, model_folder: Path) -> None:
    """Hold the checkpoints that are kept against the free space under a run folder.

    Raises:
        RunFolderError: too little; names both sizes.
    """
    needed = model_bytes(model_folder) * _BYTES_PER_CHECKPOINT_BYTE * (config.checkpoint.keep + 1)
    free = shutil.disk_usage(root).free
    if free < needed:
        raise RunFolderError(
            f"run folder {root}: {free >> 20} MiB free, {config.checkpoint.keep + 1} checkpoints "
            f"of this model need {needed >> 20} MiB; lower checkpoint.keep or free some space"
        )


def check_weights_room(config: Config, model_folder: Path) -> None:
    """Hold the published weight sets against shared memory, where they lie there.

    Raises:
        WeightsError: see `check_shared_memory`.
    """
    if config.weights.location == "shared_memory":
        check_shared_memory(published_bytes(config, model_folder))


def published_bytes(config: Config, model_folder: Path) -> int:
    """At most what the published weights take.

    All of them in fp32, of a model that may be stored in half of that; or an adapter alone, as if
    it were on every matrix.
    """
    size, lora = 2 * model_bytes(model_folder), config.learner.lora
    if lora.pushes_adapter:
        matrices = [shape for shape in folder_shapes(model_folder).values() if len(shape) == 2]
        size = min(size, sum(4 * lora.rank * (shape[0] + shape[1]) for shape in matrices))
    return (config.weights.keep + 1) * size


def model_bytes(model_folder: Path) -> int:
    """Size of the files with weights."""
    return sum(file.stat().st_size for file in weight_files(model_folder))
