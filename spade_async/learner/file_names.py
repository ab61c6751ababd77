"""Weights under the names of a checkpoint file, where a model has others in memory.

transformers holds the experts of a mixture as one tensor per layer and writes them one by one, as
every other program reads them.
"""

from __future__ import annotations

from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion


def as_in_file(model: PreTrainedModel, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights as `save_pretrained` would name and cut them.

    Args:
        model: whose weights they are.
        tensors: under their names in memory, uncut.
    """
    found: dict[str, Tensor] = revert_weight_conversion(model, dict(tensors))
    return found
