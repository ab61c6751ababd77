"""What the learner trains: model, optimiser, and the version they are at."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from spade_async.config.schema import LearnerConfig
from spade_async.errors import WeightsError, boundary
from spade_async.learner.critic import Critic, hidden_width
from spade_async.types import PolicyVersion


class LearnerState:
    """Model in float32 and evaluation mode, AdamW, version. Changed in place by `update.py`.

    Evaluation mode on purpose: with dropout the learner's log-probabilities would not be those of
    the weights that are published.
    """

    def __init__(
        self, model: PreTrainedModel, optimizer: torch.optim.AdamW, version: PolicyVersion
    ):
        self.model = model
        self.optimizer = optimizer
        self.version = version
        # Trained parameters by name; a tied weight appears once, under its first name.
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.critic: Critic | None = None
        """Value head, when the configuration has one; its own optimiser trains it."""

    @classmethod
    def create(cls, folder: Path, config: LearnerConfig, version: PolicyVersion) -> LearnerState:
        """Load a Hugging Face folder with a fresh optimiser.

        Raises:
            WeightsError: the folder is missing or cannot be loaded.
        """
        model = load_model(folder)
        state = cls(model, make_optimizer(model, config), version)
        if config.critic.enabled:
            state.critic = Critic(hidden_width(model), config.critic)
        return state

    def published_tensors(self) -> dict[str, Tensor]:
        """Weights that generators load, under all their names (a tied one has several).

        The tensors are the live ones: they must be copied before the next update.
        """
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items()}

    @property
    def vocab_size(self) -> int:
        """Rows of the input embedding: ids at or above it cannot be trained."""
        weight = self.model.get_input_embeddings().weight
        assert isinstance(weight, Tensor)
        return int(weight.shape[0])


def load_model(folder: Path) -> PreTrainedModel:
    """A causal LM from an ordinary Hugging Face folder, float32, evaluation mode.

    Raises:
        WeightsError: the folder is missing or damaged.
    """
    if not (folder / "config.json").is_file():
        raise WeightsError(f"model folder {folder} has no config.json: check model.path")
    with boundary(WeightsError, f"loading model folder {folder}"):
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True
        )
    for tensor in (*model.parameters(), *model.buffers()):
        # Loaded tensors map the file: see `checkpoint._restore`.
        tensor.data = tensor.data.clone()
    model.eval()  # type: ignore[no-untyped-call]
    assert isinstance(model, PreTrainedModel), type(model)
    return model


def make_optimizer(model: PreTrainedModel, config: LearnerConfig) -> torch.optim.AdamW:
    """AdamW; weight decay acts on matrices only, not on norms and biases."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [g for g in groups if g["params"]], lr=config.lr, betas=config.betas, foreach=True
    )


def learning_rate(step: int, config: LearnerConfig) -> float:
    """Linear warm-up to `learner.lr`, then constant; a pure function of the step (from 1)."""
    if step >= config.warmup_steps:
        return config.lr
    return config.lr * step / config.warmup_steps
