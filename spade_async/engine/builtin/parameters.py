"""Names and shapes of a network's weights, and swapping a whole set in."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spade_async.errors import WeightsError


class Parameters:
    """The weights of one network. Tied ones (the same memory) count once, under any name."""

    def __init__(self, network: nn.Module) -> None:
        self._groups: dict[int, list[str]] = {}
        self._targets: dict[int, Tensor] = {}
        for name, tensor in network.state_dict(keep_vars=True).items():
            self._groups.setdefault(id(tensor), []).append(name)
            self._targets[id(tensor)] = tensor
        self._names = {name for group in self._groups.values() for name in group}

    @property
    def num_bytes(self) -> int:
        """Memory of the weights, tied ones once."""
        return sum(t.numel() * t.element_size() for t in self._targets.values())

    def tensor(self, name: str) -> Tensor:
        """The weight of that name, as it stands in the network."""
        for key, names in self._groups.items():
            if name in names:
                return self._targets[key]
        raise KeyError(name)

    def by_name(self) -> dict[str, Tensor]:
        """Every weight as it stands in the network, under all its names."""
        return {n: self._targets[key] for key, names in self._groups.items() for n in names}

    def check(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """A set as it can be swapped in: first name of each group -> finite tensor.

        Raises:
            WeightsError: a name is missing or unknown, a shape differs, a value is not finite, or
                tied weights differ.
        """
        unknown = sorted(set(tensors) - self._names)
        if unknown:
            raise WeightsError(f"the weights hold {unknown[0]!r}, which the model does not have")
        checked: dict[str, Tensor] = {}
        for key, names in self._groups.items():
            given = [tensors[name] for name in names if name in tensors]
            if not given:
                raise WeightsError(f"the weights lack {names[0]!r}")
            target = self._targets[key]
            for name, tensor in zip(names, given, strict=False):
                if tensor.shape != target.shape:
                    raise WeightsError(
                        f"{name!r} has shape {tuple(tensor.shape)} in the weights and "
                        f"{tuple(target.shape)} in the model"
                    )
            if any(t is not given[0] and not torch.equal(t, given[0]) for t in given[1:]):
                raise WeightsError(f"{' and '.join(names)} are tied in the model but differ")
            if not bool(torch.isfinite(given[0]).all()):
                raise WeightsError(f"{names[0]!r} has a value that is not finite")
            checked[names[0]] = given[0].to(target.dtype).contiguous()
        return checked

    def swap(self, checked: dict[str, Tensor]) -> None:
        """Copy a set from `check` into the network. In place, so that views stay valid."""
        for key, names in self._groups.items():
            self._targets[key].data.copy_(checked[names[0]])
