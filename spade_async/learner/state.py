"""What the learner trains: model, optimiser, and the version they are at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from spade_async.config.held_model import HeldModel
from spade_async.config.schema import Config, LearnerConfig
from spade_async.errors import WeightsError, boundary
from spade_async.grpo.batch import MicroBatch
from spade_async.learner.adapter import add_adapter, merged, peft_names, without_adapter
from spade_async.learner.critic import Critic, hidden_width
from spade_async.learner.file_names import as_in_file
from spade_async.learner.layers import recompute_layers
from spade_async.learner.ranks import Ranks, ranks
from spade_async.learner.scoring import Scores, TokenScorer
from spade_async.learner.sharding import set_whole, shard, whole
from spade_async.types import PolicyVersion


class LearnerState:
    """Model in evaluation mode, AdamW, version. Changed in place by `update.py`.

    Evaluation mode on purpose: with dropout the learner's log-probabilities would not be those of
    the weights that are published.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        optimizer: torch.optim.AdamW,
        version: PolicyVersion,
        *,
        scorer: TokenScorer | None = None,
        config: HeldModel | None = None,
        base_folder: Path | None = None,
    ):
        """Take the parts; `create` makes them.

        Args:
            model: its weights are float32, cut over the ranks or whole.
            optimizer: over the model's trained weights.
            version: of the weights.
            scorer: what is called to score tokens; None makes one of a model that is not cut.
            config: how the model is held.
            base_folder: where an adapter's frozen weights come from.
        """
        self.model = model
        self.optimizer = optimizer
        self.version = version
        self.config = config or HeldModel()
        self.base_folder = base_folder
        self.ranks: Ranks = ranks() if self.config.is_sharded else Ranks(0, 1)
        """The processes that hold this state together."""
        self.scorer = TokenScorer(model) if scorer is None else scorer
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
        model = load_model(folder, config.attention, config.first_device)
        if config.lora.rank:
            add_adapter(model, config.lora)
        if config.activation_checkpointing:
            recompute_layers(model)
        scorer = TokenScorer(model)
        if config.is_sharded:
            shard(scorer, model, config)
        state = cls(
            model,
            make_optimizer(model, config),
            version,
            scorer=scorer,
            config=config,
            base_folder=folder if config.lora.rank else None,
        )
        if config.critic.enabled:
            state.critic = Critic(hidden_width(model), config.critic)
        return state

    def start_scorer(self, start_model: PreTrainedModel | None) -> Scores:
        """Scores tokens under the frozen start policy.

        Args:
            start_model: that policy, held as this one from here on; not needed with an adapter.

        Raises:
            ValueError: it is missing.
        """
        if self.config.lora.rank:
            return _WithoutAdapter(self.scorer, self.model)
        if start_model is None:
            raise ValueError("a KL to the start needs the start model")
        start_model.requires_grad_(False)
        scorer = TokenScorer(start_model)
        if self.config.is_sharded:
            shard(scorer, start_model, self.config)
        return scorer

    def published_tensors(
        self, *, file_names: bool = False, widened: bool = False
    ) -> dict[str, Tensor]:
        """Weights that generators load, under all their names (a tied one has several).

        An adapter is merged into them. The tensors are the live ones where they can be: they must
        be copied before the next update. Every rank has to ask; rank 0 alone is given them.

        Args:
            file_names: names and cuts of a checkpoint file, instead of those in memory. They
                differ for a mixture of experts, whose experts are one tensor in memory.
            widened: values of `learner.dtype` in float32, for an engine that has only that.
        """
        found = self.whole_tensors()
        if self.config.dtype == "bfloat16":
            # One tensor of tied weights must stay one.
            unique = {id(t): t.to(torch.bfloat16) for t in found.values()}
            if widened:
                unique = {key: t.float() for key, t in unique.items()}
            found = {name: unique[id(t)] for name, t in found.items()}
        return as_in_file(self.model, found) if file_names and found else found

    def published_adapter(self) -> dict[str, Tensor]:
        """The adapter alone under peft's names, for engines that hold the frozen weights.

        In `learner.dtype`; otherwise as `published_tensors`.
        """
        found = self.adapter
        if not self.ranks.is_leader:
            return {}
        if self.config.dtype == "bfloat16":
            found = {name: tensor.to(torch.bfloat16) for name, tensor in found.items()}
        return peft_names(found)

    def whole_tensors(self) -> dict[str, Tensor]:
        """The master weights under their names in memory, uncut, an adapter merged into them.

        Every rank has to ask, rank 0 alone is given them. What was cut comes to the host, one
        weight after the other: the whole model may not fit on its device.
        """
        known: dict[int, Tensor] = {}
        tensors = {}
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            # Tied weights are gathered once, and stay one tensor.
            if id(tensor) not in known:
                gathered = whole(tensor.detach())
                known[id(tensor)] = gathered.cpu() if self.config.is_sharded else gathered
                if not self.ranks.is_leader:
                    known[id(tensor)] = gathered.new_empty(0)
            tensors[name] = known[id(tensor)]
        if not self.ranks.is_leader:
            return {}
        return merged(self.model, tensors) if self.config.lora.rank else tensors

    @property
    def adapter(self) -> dict[str, Tensor]:
        """The trained weights, uncut, under their names in memory; every rank has to ask."""
        return {name: whole(p.detach()) for name, p in self.parameters.items()}

    @adapter.setter
    def adapter(self, tensors: dict[str, Tensor]) -> None:
        if tensors.keys() != self.parameters.keys():
            odd = sorted(tensors.keys() ^ self.parameters.keys())[0]
            raise WeightsError(f"the adapter's weight {odd!r} does not fit learner.lora")
        for name, parameter in self.parameters.items():
            set_whole(parameter, tensors[name])

    @property
    def device(self) -> torch.device:
        """Where micro-batches have to be."""
        if self.config.offload and self.config.device == "cuda":
            return torch.device("cuda", torch.cuda.current_device())
        return next(self.model.parameters()).device

    @property
    def vocab_size(self) -> int:
        """Rows of the input embedding: ids at or above it cannot be trained."""
        weight = self.model.get_input_embeddings().weight
        assert isinstance(weight, Tensor)
        return int(weight.shape[0])


class _WithoutAdapter:
    """The start policy of a run that trains an adapter: the same model, the adapter off."""

    def __init__(self, scorer: TokenScorer, model: PreTrainedModel) -> None:
        self._scorer = scorer
        self._model = model

    def __call__(self, micro: MicroBatch, *, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
        """See `TokenScorer`."""
        with without_adapter(self._model):
            found: tuple[Tensor, Tensor] = self._scorer(micro, entropy_gradient=entropy_gradient)
        return found


def load_model(folder: Path, attention: str = "sdpa", device: str = "cpu") -> PreTrainedModel:
    """A causal LM from an ordinary Hugging Face folder, float32, evaluation mode.

    Raises:
        WeightsError: the folder is missing or damaged, or a weight is not in it.
    """
    if not (folder / "config.json").is_file():
        raise WeightsError(f"model folder {folder} has no config.json: check model.path")
    loader: Any = AutoModelForCausalLM  # its types do not know the second result
    with boundary(WeightsError, f"loading model folder {folder}"):
        model, told = loader.from_pretrained(
            folder,
            dtype=torch.float32,
            local_files_only=True,
            attn_implementation=attention,
            output_loading_info=True,
        )
    missing = sorted(told["missing_keys"])
    if missing:
        # transformers fills them with random numbers and says so in its log alone.
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise WeightsError(
            f"model folder {folder} lacks the weight {missing[0]!r}{more}: copy the model again"
        )
    for tensor in (*model.parameters(), *model.buffers()):
        # Loaded tensors map the file: see `moments.restore`.
        tensor.data = tensor.data.to(device, copy=True)
    model.eval()
    assert isinstance(model, PreTrainedModel), type(model)
    return model


def load_start_model(config: Config, folder: Path) -> PreTrainedModel | None:
    """The frozen start policy, when `learner.kl_to_start` needs one beside the trained model.

    Raises:
        WeightsError: the folder is missing or damaged.
    """
    learner = config.learner
    if learner.kl_to_start == 0 or learner.lora.rank:
        return None
    return load_model(folder, learner.attention, learner.first_device)


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
