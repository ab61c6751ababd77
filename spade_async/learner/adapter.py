"""LoRA adapters through peft: put into the model, merged for generators, written for others.

peft is imported only when `learner.lora.rank` is above 0 (extra "lora").
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from spade_async.config.held_model import LoraConfig
from spade_async.errors import WeightsError, boundary
from spade_async.seeds import derive

ADAPTER_FOLDER = "adapter"
"""Inside a checkpoint: an ordinary peft folder."""
ADAPTER_TENSORS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
"""Of the names in a peft file."""
_NAME = "default"


def add_adapter(model: PreTrainedModel, config: LoraConfig) -> None:
    """Freeze the model's weights and add an adapter that changes nothing yet.

    Its random half is the same in every process and in every replay.

    Raises:
        WeightsError: peft is missing, or no layer of the model has such a name.
    """
    try:
        import peft
    except ImportError as cause:
        raise WeightsError(
            f"learner.lora.rank={config.rank} needs peft, which is not installed: "
            "pip install 'spade-async[lora]', or set learner.lora.rank=0"
        ) from cause
    targets: Any = list(config.targets)
    if config.targets == ("all-linear",):
        targets = _linear_layers(model)
    # peft says int and only divides by it.
    alpha: Any = config.alpha
    wanted = peft.LoraConfig(
        r=config.rank,
        lora_alpha=alpha,
        target_modules=targets,
        lora_dropout=0.0,
        fan_in_fan_out=any(isinstance(m, Conv1D) for m in model.modules()),
        bias="none",
        task_type="CAUSAL_LM",
        base_model_name_or_path=str(model.name_or_path),
    )
    with (
        boundary(WeightsError, f"adding an adapter to {', '.join(config.targets)}"),
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(derive(0, "adapter"))
        peft.inject_adapter_in_model(wanted, model, adapter_name=_NAME)
    model.eval()  # type: ignore[no-untyped-call]


def _linear_layers(model: PreTrainedModel) -> list[str]:
    """Last names of the linear layers, the output head's left out."""
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return sorted(
        {
            name.rsplit(".", 1)[-1]
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear | Conv1D) and module is not head
        }
    )


def _adapted(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Name and module of every layer that has an adapter."""
    for name, module in model.named_modules():
        if hasattr(module, "lora_A") and hasattr(module, "base_layer"):
            yield name, module


def merged(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of the plain model: each adapter added to its layer, names as without adapters.

    Args:
        model: with an adapter.
        tensors: its weights under their names in memory, uncut.
    """
    found = dict(tensors)
    for name, module in _adapted(model):
        down = found.pop(f"{name}.lora_A.{_NAME}.weight")
        up = found.pop(f"{name}.lora_B.{_NAME}.weight")
        change = (up.float() @ down.float()) * module.scaling[_NAME]
        if getattr(module, "fan_in_fan_out", False):
            change = change.T
        weight = found.pop(f"{name}.base_layer.weight")
        found[f"{name}.weight"] = (weight.float() + change).to(weight.dtype)
        bias = found.pop(f"{name}.base_layer.bias", None)
        if bias is not None:
            found[f"{name}.bias"] = bias
    return found


@contextmanager
def without_adapter(model: nn.Module) -> Iterator[None]:
    """The frozen model inside the block: the start policy, without a second copy of it."""
    layers = [module for _, module in _adapted(model)]
    before = [module._disable_adapters for module in layers]
    for module in layers:
        module._disable_adapters = True
    try:
        yield
    finally:
        for module, value in zip(layers, before, strict=True):
            module._disable_adapters = value


def peft_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """An adapter's weights as a peft file names them, on the host.

    Args:
        tensors: under their names in memory, uncut.
    """
    return {
        _PREFIX + name.replace(f".{_NAME}.", "."): tensor.detach().cpu().contiguous()
        for name, tensor in tensors.items()
    }


def write_adapter(folder: Path, model: Any, tensors: dict[str, Tensor]) -> None:
    """Write the adapter as peft does, into a folder that is made.

    Args:
        folder: `peft.PeftModel.from_pretrained(base, folder)` reads it.
        model: with an adapter.
        tensors: its adapter's weights under their names in memory, uncut.
    """
    folder.mkdir()
    save_file(peft_names(tensors), folder / ADAPTER_TENSORS)
    model.peft_config[_NAME].save_pretrained(folder)


def read_adapter(folder: Path) -> dict[str, Tensor]:
    """The adapter's weights under their names in memory; inverse of `write_adapter`."""
    return {
        name.removeprefix(_PREFIX).replace("lora_A.", f"lora_A.{_NAME}.").replace(
            "lora_B.", f"lora_B.{_NAME}."
        ): tensor
        for name, tensor in load_file(folder / ADAPTER_TENSORS).items()
    }  # fmt: skip
