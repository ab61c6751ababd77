"""Weights of a scripted run: a few numbers that follow from the version, in a real weight file.

Log-probabilities are made from them, so that whoever scores with stale or damaged weights is seen.
numpy only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spade_async.errors import WeightsError, boundary
from spade_async.seeds import derive
from spade_async.types import PolicyVersion
from spade_async.weights.store import read_weights

SIZE = 64
NAME = "scripted"


def weights_of(version: PolicyVersion, num_bytes: int = 0) -> dict[str, NDArray[np.float32]]:
    """[SIZE] values in [0, 1) of a version, and a filler of `num_bytes` when it is above 0."""
    draw = np.random.default_rng(derive(version.branch, "weights", version.step))
    arrays = {NAME: draw.random(SIZE, dtype=np.float32)}
    if num_bytes:
        arrays["filler"] = np.full(num_bytes // 4, version.step, np.float32)
    return arrays


def write_weights(path: Path, version: PolicyVersion, num_bytes: int = 0) -> None:
    """Write a version's weights as safetensors."""
    from safetensors.numpy import save_file

    save_file(weights_of(version, num_bytes), path, metadata={"version": str(version)})


def load_weights(location: str, digest: str) -> NDArray[np.float32]:
    """The [SIZE] values of a published file, checked.

    Raises:
        WeightsError: missing, damaged, or not the announced digest.
    """
    from safetensors.numpy import load

    data = read_weights(location, digest)
    with boundary(WeightsError, f"weights at {location} are damaged"):
        return np.asarray(load(data)[NAME], np.float32)


def logprobs(
    weights: NDArray[np.float32], ids: Sequence[int] | NDArray[np.int32]
) -> NDArray[np.float32]:
    """Log-probability of each id under these weights, in (-1.1, -0.1]."""
    return np.asarray(-0.1 - weights[np.asarray(ids, np.int64) % SIZE], np.float32)


def digests(weights: NDArray[np.float32]) -> dict[str, str]:
    """Digest by tensor name, for attestation."""
    return {NAME: hashlib.blake2b(weights.tobytes(), digest_size=16).hexdigest()}


def write_model_folder(folder: Path) -> Path:
    """The model folder of a scripted run: complete by name, a few hundred bytes. Gives `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "scripted"}) + "\n")
    (folder / "tokenizer.json").write_text("{}\n")
    write_weights(folder / "model.safetensors", PolicyVersion(0, 0))
    return folder
