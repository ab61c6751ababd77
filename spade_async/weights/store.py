"""Where weight sets live between the learner and the generators: one file per version, on one node.

A file is written beside its final name and renamed, so that a reader sees a whole file or none. The
digest is taken over the file's bytes; a reader recomputes it, so a `WeightsLoaded` proves what was
read. Tensors that share memory (tied embeddings) are stored once and named in the header.

No torch at import: the supervisor and the commands use the folder functions in `folder.py` only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from spade_async.errors import WeightsError, boundary
from spade_async.types import PolicyVersion

if TYPE_CHECKING:
    import torch

_NAME = re.compile(r"^weights-(\d+)\.(\d+)\.safetensors$")
_ALIASES = "aliases"


@dataclass(frozen=True, slots=True)
class Published:
    """What the learner announces about one weight set."""

    location: str
    """Absolute path of the file."""
    digest: str
    """Hex blake2b (32 bytes) of the file's bytes."""
    seconds: float
    """Wall time of writing and hashing."""


class WeightStore(Protocol):
    """Carries weight sets from the learner to the generators."""

    def publish(self, version: PolicyVersion, tensors: dict[str, torch.Tensor]) -> Published:
        """Make a weight set readable under a location.

        Raises:
            WeightsError: it cannot be written (the message says what to do).
        """

    def load(self, location: str, digest: str) -> dict[str, torch.Tensor]:
        """Read a weight set, checked.

        Raises:
            WeightsError: missing, damaged, or not the announced digest.
        """


class FileWeightStore:
    """Weight sets as safetensors files in one private folder; the newest `keep` are kept.

    Args:
        folder: made with mode 0700 at the first `publish`; see `folder.weights_folder`.
        keep: files kept. At least 2, so that a generator reading the last one is not robbed.
    """

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder = folder
        self.keep = max(2, keep)

    def publish(self, version: PolicyVersion, tensors: dict[str, torch.Tensor]) -> Published:
        """Write, hash, rename, drop the oldest. See `WeightStore.publish`."""
        from safetensors.torch import save_file

        def write(path: Path) -> None:
            unique, aliases = _without_aliases(tensors)
            header = {"version": str(version), _ALIASES: json.dumps(aliases)}
            save_file(unique, path, metadata=header)

        return self.publish_file(version, write)

    def publish_file(self, version: PolicyVersion, write: Callable[[Path], None]) -> Published:
        """The same for whatever `write` puts into the path it is given.

        Raises:
            WeightsError: it cannot be written (the message says what to do).
        """
        start = time.monotonic()
        final = self.folder / f"weights-{version}.safetensors"
        temporary = self.folder / f".{final.name}.{os.getpid()}.tmp"
        what = (
            f"writing weights {version} to {self.folder} (when it is full: free space there, or "
            "change weights.location)"
        )
        with boundary(WeightsError, what):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                write(temporary)
                digest = file_digest(temporary)
                temporary.replace(final)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            self._drop_oldest()
        return Published(str(final), digest, time.monotonic() - start)

    def load(self, location: str, digest: str) -> dict[str, torch.Tensor]:
        """Read and check. See `WeightStore.load`."""
        return load_weights(location, digest)

    def sweep(self) -> None:
        """Remove what a killed learner left half written; only the learner calls it."""
        for path in self.folder.glob(".weights-*.tmp"):
            path.unlink(missing_ok=True)

    def versions(self) -> list[PolicyVersion]:
        """Versions that are stored now, oldest first."""
        found = [
            PolicyVersion(int(match[1]), int(match[2]))
            for path in self.folder.glob("weights-*.safetensors")
            if (match := _NAME.match(path.name))
        ]
        return sorted(found)

    def _drop_oldest(self) -> None:
        for version in self.versions()[: -self.keep]:
            with contextlib.suppress(FileNotFoundError):
                (self.folder / f"weights-{version}.safetensors").unlink()


def load_weights(location: str, digest: str) -> dict[str, torch.Tensor]:
    """Read one weight set; the bytes that are parsed are the bytes that were hashed.

    Raises:
        WeightsError: missing, damaged, or not the announced digest.
    """
    from safetensors.torch import load

    data = read_weights(location, digest)
    with boundary(WeightsError, f"weights at {location} are damaged"):
        tensors = load(data)
        for alias, name in _read_aliases(data).items():
            tensors[alias] = tensors[name]
    return tensors


def read_weights(location: str, digest: str) -> bytes:
    """The bytes of a weight file, checked.

    Raises:
        WeightsError: missing, or not the announced digest.
    """
    try:
        data = Path(location).read_bytes()
    except OSError as cause:
        raise WeightsError(
            f"weights at {location} cannot be read ({cause.strerror}); wait for a newer version, "
            "or raise weights.keep if readers are slower than the learner"
        ) from cause
    found = _hash(data)
    if found != digest:
        raise WeightsError(
            f"weights at {location} have digest {found[:16]}..., announced was {digest[:16]}...: "
            "the file is damaged or of another run; it was not loaded"
        )
    return data


def file_digest(path: Path) -> str:
    """Digest of a file's bytes, as in `Published.digest`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def _without_aliases(
    tensors: dict[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Contiguous CPU tensors to write, and the names that are the same memory as another one."""
    unique: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[tuple[int, tuple[int, ...], tuple[int, ...], str], str] = {}
    for name, tensor in tensors.items():
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), str(tensor.dtype))
        if tensor.numel() and key in first:
            aliases[name] = first[key]
            continue
        first[key] = name
        # A view into a bigger storage would be refused by safetensors: `clone` gives it its own.
        plain = tensor.detach().cpu()
        whole = plain.untyped_storage().nbytes() == plain.numel() * plain.element_size()
        unique[name] = plain if whole and plain.is_contiguous() else plain.contiguous().clone()
    return unique, aliases


def _read_aliases(data: bytes) -> dict[str, str]:
    """The alias table of a safetensors header (8 bytes of length, then JSON)."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    aliases = json.loads(header.get("__metadata__", {}).get(_ALIASES, "{}"))
    return {str(alias): str(name) for alias, name in aliases.items()}
