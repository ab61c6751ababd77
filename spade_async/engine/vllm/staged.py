"""A weight set on its way in: held open, hashed and checked while tokens are sampled.

What was checked is what is loaded: vLLM opens our descriptor, whatever becomes of the file's name.
The set in use stays held, for an engine that has to be started anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from spade_async.errors import WeightsError, boundary
from spade_async.types import PolicyVersion
from spade_async.weights.header import WeightHeader, read_header

_NO_WEIGHTS = "rotary_emb.inv_freq"
"""Old model folders hold this constant among their weights."""


@dataclass(frozen=True, slots=True)
class StagedWeights:
    """One checked weight set. Close it when a newer one is in use."""

    version: PolicyVersion
    file: BinaryIO
    names: dict[str, str]
    """Name that the model's loader knows -> name in the file."""
    location: str
    """Where it was published; the name may be gone by now."""
    adapter: dict[str, Any] | None = None
    """Rank, scale and layers when it is an adapter alone; None: all weights."""

    @property
    def folder(self) -> Path:
        """The run's private folder for weights."""
        return Path(self.location).parent

    @property
    def path(self) -> str:
        """Where other processes of this user find the very same file while it is held."""
        return f"/proc/{os.getpid()}/fd/{self.file.fileno()}"

    def file_info(self) -> dict[str, Any]:
        """What `file_transfer.FileUpdateInfo` is made of."""
        status = os.fstat(self.file.fileno())
        return {
            "path": self.path,
            "inode": status.st_ino,
            "num_bytes": status.st_size,
            "names": self.names,
        }

    def close(self) -> None:
        """Let the file go."""
        self.file.close()


def stage(
    version: PolicyVersion,
    location: str,
    digest: str,
    expected: Mapping[str, tuple[int, ...]],
) -> StagedWeights:
    """Open and check a published weight set. Takes about 2 s per GB; no lock is held.

    Args:
        version: of the weights.
        location: path of the file.
        digest: of its bytes, as it was announced.
        expected: name -> shape of the model's weights (`header.folder_shapes`).

    Raises:
        WeightsError: missing, damaged, another digest, names or shapes of another model, or a value
            that is not finite.
    """
    file = open_checked(location, digest)
    try:
        header = read_header(file, location)
        staged = StagedWeights(version, file, loader_names(header, expected), location)
        _check_values(staged, header, location)
    except BaseException:
        file.close()
        raise
    return staged


def open_checked(location: str, digest: str) -> BinaryIO:
    """Open a published file whose bytes have that digest.

    Raises:
        WeightsError: missing, damaged, or another digest.
    """
    try:
        file = Path(location).open("rb")  # noqa: SIM115 - held until the next ones are in
    except OSError as cause:
        raise WeightsError(
            f"weights at {location} cannot be read ({cause.strerror}); wait for a newer version, "
            "or raise weights.keep if readers are slower than the learner"
        ) from cause
    found = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
    if found != digest:
        file.close()
        raise WeightsError(
            f"weights at {location} have digest {found[:16]}..., announced was "
            f"{digest[:16]}...: the file is damaged or of another run; it was not loaded"
        )
    return file


def loader_names(header: WeightHeader, expected: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Which stored tensor goes in under which name: each once, under the model folder's name.

    Raises:
        WeightsError: a name is missing, or a shape differs.
    """
    stored = header.stored()
    if not expected:
        return {name: name for name in header.shapes}
    names: dict[str, str] = {}
    for name, shape in expected.items():
        if name not in stored:
            if name.endswith(_NO_WEIGHTS):
                continue
            raise WeightsError(f"the weights lack {name!r}")
        found = header.shapes[stored[name]]
        if found != shape:
            raise WeightsError(
                f"{name!r} has shape {found} in the weights and {shape} in the model"
            )
        names[name] = stored[name]
    return names


def _check_values(staged: StagedWeights, header: WeightHeader, location: str) -> None:
    """All are finite; what the model does not name is a copy of what it names (a tied head)."""
    check_finite(staged, location)
    import torch
    from safetensors import safe_open

    with (
        boundary(WeightsError, f"weights at {location} are damaged"),
        safe_open(staged.path, framework="pt") as tensors,
    ):
        for extra in sorted(set(header.shapes) - set(staged.names.values())):
            alike = [s for s in staged.names.values() if header.shapes[s] == header.shapes[extra]]
            value = tensors.get_tensor(extra)
            if not any(torch.equal(value, tensors.get_tensor(stored)) for stored in alike):
                raise WeightsError(f"the weights hold {extra!r}, which the model does not have")


def check_finite(staged: StagedWeights, location: str) -> None:
    """Read every value once.

    Raises:
        WeightsError: one is not finite, or the file is damaged.
    """
    import torch
    from safetensors import safe_open

    with (
        boundary(WeightsError, f"weights at {location} are damaged"),
        safe_open(staged.path, framework="pt") as tensors,
    ):
        for name, stored in staged.names.items():
            tensor = tensors.get_tensor(stored)
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise WeightsError(f"{name!r} has a value that is not finite")
