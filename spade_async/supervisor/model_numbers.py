"""Whether the weights of a model folder are finite, read straight from the files.

One bit pattern decides: a number of a floating type is not finite when all bits of its exponent are
set. So bfloat16, which numpy does not know, needs no conversion.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spade_async.errors import ConfigError
from spade_async.supervisor.model_folder import weight_files
from spade_async.supervisor.tensor_file import StoredTensor, read_header

MOST_BYTES = 8 << 30
"""Up to this size of a model every number is looked at; of a larger one the ends of each tensor."""
END_BYTES = 1 << 20
"""Looked at, at each end, of a tensor of a larger model."""
_CHUNK_BYTES = 16 << 20
_EXPONENT = {
    "F64": (np.uint64, 0x7FF0_0000_0000_0000),
    "F32": (np.uint32, 0x7F80_0000),
    "F16": (np.uint16, 0x7C00),
    "BF16": (np.uint16, 0x7F80),
}  # fmt: skip


def check_numbers(path: Path, most_bytes: int = MOST_BYTES) -> None:
    """See that no weight is NaN or infinite.

    Args:
        path: a folder that `check_model_folder` passed.
        most_bytes: of a model that is read whole.

    Raises:
        ConfigError: a weight is not finite; names it.
    """
    files = [file for file in weight_files(path) if file.suffix == ".safetensors"]
    reads_all = sum(file.stat().st_size for file in files) <= most_bytes
    for file in files:
        with file.open("rb") as source:
            for name, tensor in read_header(file).items():
                for begin, end in _parts(tensor, reads_all):
                    source.seek(begin)
                    if not _is_finite(source.read(end - begin), tensor.dtype):
                        raise ConfigError(
                            f"model.path={str(path)!r}: the weight {name!r} in {file.name} has a "
                            "value that is not finite (NaN or infinite); copy the model again, or "
                            "take an earlier checkpoint"
                        )


def _parts(tensor: StoredTensor, reads_all: bool) -> list[tuple[int, int]]:
    """Spans of bytes to read, each a whole number of elements."""
    begin, end = tensor.begin, tensor.end
    if not reads_all and end - begin > 2 * END_BYTES:
        return [(begin, begin + END_BYTES), (end - END_BYTES, end)]
    starts = range(begin, end, _CHUNK_BYTES)
    return [(start, min(start + _CHUNK_BYTES, end)) for start in starts]


def _is_finite(block: bytes, dtype: str) -> bool:
    if dtype not in _EXPONENT:
        return True
    kind, mask = _EXPONENT[dtype]
    values = np.frombuffer(block, kind)
    return not bool(((values & kind(mask)) == mask).any())
