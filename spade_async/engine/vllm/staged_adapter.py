"""An adapter on its way in: checked as whole weights are, against the layers it goes onto."""

from __future__ import annotations

from collections.abc import Mapping

from spade_async.config.held_model import LoraConfig
from spade_async.engine.vllm.staged import StagedWeights, check_finite, open_checked
from spade_async.errors import WeightsError
from spade_async.types import PolicyVersion
from spade_async.weights.header import WeightHeader, read_header

_PREFIX = "base_model.model."
"""Of the names in a peft file."""
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"


def stage_adapter(
    version: PolicyVersion,
    location: str,
    digest: str,
    expected: Mapping[str, tuple[int, ...]],
    lora: LoraConfig,
) -> StagedWeights:
    """Open and check a published adapter; no lock is held.

    Args:
        version: of the adapter.
        location: path of the file, tensors named as peft names them.
        digest: of its bytes, as it was announced.
        expected: name -> shape of the frozen weights (`header.folder_shapes`).
        lora: rank and scale of the adapter.

    Raises:
        WeightsError: missing, damaged, another digest, not an adapter of that rank, of layers that
            the model does not have, or a value that is not finite.
    """
    file = open_checked(location, digest)
    try:
        header = read_header(file, location)
        layers = adapted_layers(header, expected, lora.rank)
        staged = StagedWeights(
            version,
            file,
            {name: name for name in header.shapes},
            location,
            {
                "r": lora.rank,
                "lora_alpha": lora.alpha,
                "target_modules": sorted({layer.rpartition(".")[2] for layer in layers}),
            },
        )
        check_finite(staged, location)
    except BaseException:
        file.close()
        raise
    return staged


def adapted_layers(
    header: WeightHeader, expected: Mapping[str, tuple[int, ...]], rank: int
) -> list[str]:
    """Names of the layers that an adapter's file changes.

    Raises:
        WeightsError: it is none, half of a pair is missing, or a shape does not fit.
    """
    shapes = header.shapes
    layers = sorted({name.removesuffix(_DOWN) for name in shapes if name.endswith(_DOWN)})
    pairs = {layer + end for layer in layers for end in (_DOWN, _UP)}
    odd = sorted(pairs ^ shapes.keys())
    if odd or not layers or header.aliases:
        what = f"{odd[0]!r} has no other half" if odd else "it holds no pair of matrices"
        raise WeightsError(
            f"this is not an adapter ({what}); learner and generator must agree on "
            "learner.lora.push"
        )
    for layer in layers:
        down, up = shapes[layer + _DOWN], shapes[layer + _UP]
        weight = f"{layer.removeprefix(_PREFIX)}.weight"
        if expected and weight not in expected:
            raise WeightsError(f"the adapter is for {weight!r}, which the model does not have")
        wanted = expected.get(weight, (up[0], down[-1]))
        if (down, up) != ((rank, wanted[-1]), (wanted[0], rank)):
            raise WeightsError(
                f"the adapter of {weight!r} has shapes {down} and {up}; of rank {rank} on "
                f"{wanted} it has {(rank, wanted[-1])} and {(wanted[0], rank)}"
            )
    return layers
