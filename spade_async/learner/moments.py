"""The optimiser's state on disk: one file per rank, read back by any number of ranks.

A file holds the slices of one rank, cut along the first dimension, and says in its header where
they begin; `learner_state.tensors` is the file of a lone rank. The format is safetensors' own, the
ending is not: vLLM takes every `*.safetensors` of a folder for weights of the model.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor

from spade_async.errors import WeightsError
from spade_async.learner.sharding import first_row, own
from spade_async.learner.state import LearnerState

STATE_TENSORS = "learner_state.tensors"
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps per parameter."""
_RNG = "rng.torch"
_BEGIN = "first_rows"


def file_name(rank: int, world: int) -> str:
    """Name of the file of one rank."""
    if world == 1:
        return STATE_TENSORS
    return f"learner_state-{rank:05d}-of-{world:05d}.tensors"


def write_moments(folder: Path, state: LearnerState) -> None:
    """Write this rank's file."""
    ranks = state.ranks
    tensors: dict[str, Tensor] = {_RNG: torch.get_rng_state()} if ranks.is_leader else {}
    begins: dict[str, int] = {}
    for name, parameter in state.parameters.items():
        for key, value in state.optimizer.state.get(parameter, {}).items():
            if key == "step" and not ranks.is_leader:
                continue
            tensors[f"{key}.{name}"] = own(value.detach()).cpu().contiguous()
            if isinstance(value, DTensor):
                begins[f"{key}.{name}"] = first_row(value)
    metadata = {_BEGIN: json.dumps(begins)} if begins else None
    save_file(tensors, folder / file_name(ranks.rank, ranks.world), metadata=metadata)


def restore_moments(folder: Path, state: LearnerState) -> None:
    """Set optimiser and random state from the files of a checkpoint, whoever wrote them.

    Raises:
        WeightsError: a file, a tensor or a slice is missing, or does not fit the model.
    """
    with ExitStack() as stack:
        pieces = _Pieces([stack.enter_context(_open(path)) for path in _files(folder)])
        torch.set_rng_state(pieces.one(_RNG))
        known = {f"{k}.{name}": (k, p) for name, p in state.parameters.items() for k in _MOMENTS}
        stored = pieces.names - {_RNG}
        for name in sorted(stored - known.keys()):
            raise WeightsError(f"optimiser state {name!r} fits no parameter of the model")
        for name in sorted(known.keys() - stored):
            if stored:
                raise WeightsError(f"optimiser state {name!r} is missing")
        for name in stored:
            key, parameter = known[name]
            # A copy of its own: loaded tensors map the file, with an alignment that may change the
            # last bit of a sum, and keep a removed checkpoint's disk space.
            value = pieces.one(name).clone() if key == "step" else _like(parameter, pieces, name)
            state.optimizer.state[parameter][key] = value


def _files(folder: Path) -> list[Path]:
    whole = folder / STATE_TENSORS
    found = sorted(folder.glob("learner_state-*-of-*.tensors"))
    if whole.is_file() or not found:
        return [whole]
    world = int(found[0].stem.rsplit("-", 1)[1])
    for rank in range(world):
        if not (folder / file_name(rank, world)).is_file():
            raise WeightsError(f"{file_name(rank, world)} is missing")
    return [folder / file_name(rank, world) for rank in range(world)]


def _open(path: Path) -> Any:
    return safe_open(path, framework="pt")


class _Pieces:
    """Tensors that lie in pieces in several files."""

    def __init__(self, files: list[Any]) -> None:
        self._where: dict[str, list[tuple[int, Any]]] = {}
        for file in files:
            begins = json.loads((file.metadata() or {}).get(_BEGIN, "{}"))
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                self._where.setdefault(name, []).append((int(begins.get(name, 0)), file))
        self.names = set(self._where)

    def one(self, name: str) -> Tensor:
        """A tensor that lies in one file."""
        if name not in self._where:
            raise WeightsError(f"optimiser state {name!r} is missing")
        found: Tensor = self._where[name][0][1].get_tensor(name)
        return found

    def rows(self, name: str, begin: int, end: int) -> Tensor:
        """Rows from `begin` to before `end` of the whole tensor."""
        parts = []
        for first, file in sorted(self._where[name], key=lambda item: item[0]):
            stored = file.get_slice(name)
            count = stored.get_shape()[0]
            low, high = max(begin, first), min(end, first + count)
            if low < high:
                parts.append(stored[low - first : high - first])
        if parts:
            return torch.cat(parts)
        empty: Tensor = self._where[name][0][1].get_slice(name)[0:0]
        return empty

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the whole tensor."""
        shapes = [file.get_slice(name).get_shape() for _, file in self._where[name]]
        if not shapes[0]:
            return ()
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _like(parameter: Tensor, pieces: _Pieces, name: str) -> Tensor:
    """This rank's part of a stored tensor, cut as the parameter is."""
    shape = pieces.shape(name)
    if shape != tuple(parameter.shape):
        raise WeightsError(f"optimiser state {name!r} has shape {shape}")
    if not isinstance(parameter, DTensor):
        found = pieces.rows(name, 0, shape[0]) if shape else pieces.one(name)
        return found.to(parameter.device, copy=True)
    begin = first_row(parameter)
    local = pieces.rows(name, begin, begin + own(parameter).shape[0]).clone()
    return DTensor.from_local(
        local.to(own(parameter).device),
        parameter.device_mesh,
        parameter.placements,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
