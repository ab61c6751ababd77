"""Adapters of a tiny model as a learner publishes them, and the same models merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from spade_async.config.held_model import LoraConfig
from spade_async.config.schema import Config
from spade_async.learner.state import LearnerState
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore, Published
from tests.support.vllm_world import World

LORA = LoraConfig(rank=4, alpha=8.0)


class AdapterWorld(World):
    """Version 0 is the folder; later ones are adapters, and `models` has them merged."""

    def __init__(self, folder: Path, store: FileWeightStore) -> None:
        super().__init__(folder, store)
        learner = Config(learner={"lora": LORA.model_dump()}).learner
        self.state = LearnerState.create(folder, learner, PolicyVersion(0, 0))

    def publish(self, step: int) -> Published:
        """Clearly different adapters for each step, both matrices random."""
        draw = torch.Generator().manual_seed(step)
        with torch.no_grad():
            for parameter in self.state.parameters.values():
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=draw))
        if step not in self.models:
            merged: Any = AutoModelForCausalLM.from_pretrained(
                str(self.folder), dtype=torch.float32, local_files_only=True
            ).eval()
            merged.load_state_dict(self.state.whole_tensors())
            self.models[step] = merged
        return self.store.publish(PolicyVersion(0, step), self.state.published_adapter())
