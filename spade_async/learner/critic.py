"""The value head: linear in the policy's last hidden states, and what it makes of a step.

It reads the hidden states and does not move them: its gradient ends there, so that neither size nor
rate of its loss disturbs the policy. States of a step are read once, before its update; the head is
trained on them afterwards, if the update was applied. It lies in checkpoints, not in published
weights: an engine has no use for it. Formulas: docs/correction.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from spade_async.config.critic import CriticConfig
from spade_async.errors import WeightsError
from spade_async.grpo.batch import build_micro_batch, num_input_tokens
from spade_async.grpo.gae import Floats, ReturnScale, generalised_advantages, normalised
from spade_async.grpo.plan import plan_micro_batches
from spade_async.grpo.samples import TrainSample
from spade_async.types import Role

CRITIC_TENSORS = "critic.tensors"
"""File of a checkpoint; not `*.safetensors`, see `moments.py`."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A step as the head sees it before the update."""

    samples: list[TrainSample]
    """With advantages per token; unchanged while the head warms up."""
    states: Tensor
    """[N, D] hidden state before each trained token, float32, in the order of the samples."""
    values: Tensor
    """[N]"""
    targets: Tensor
    """[N]"""
    scales: Mapping[Role, ReturnScale]
    """With the returns of this step."""


def value_loss(new: Tensor, old: Tensor, targets: Tensor, clip: float) -> Tensor:
    """[N] ``max((v - target)^2, (clip(v, V - e, V + e) - target)^2) / 2``, PPO's value clip.

    Args:
        new: [N] values with gradient.
        old: [N] values before the step.
        targets: [N]
        clip: e; 0 is none.
    """
    loss = (new - targets) ** 2
    if clip > 0:
        held = old + (new - old).clamp(-clip, clip)
        loss = torch.maximum(loss, (held - targets) ** 2)
    return 0.5 * loss


class Critic:
    """Value head, its optimiser and the scales of returns. Starts at value 0 everywhere."""

    def __init__(self, width: int, config: CriticConfig) -> None:
        """A head that has learned nothing.

        Args:
            width: of the policy's hidden states.
            config: section learner.critic.
        """
        self._config = config
        self._weight = torch.zeros(width + 1, requires_grad=True)
        """[D + 1] the last one is the constant."""
        self._optimizer = torch.optim.Adam([self._weight], lr=config.lr)
        self.scales: dict[Role, ReturnScale] = {role: ReturnScale() for role in Role}
        self.num_steps = 0
        """Steps it has learned from."""

    def values(self, states: Tensor) -> Tensor:
        """[N] of [N, D] hidden states."""
        return states @ self._weight[:-1] + self._weight[-1]

    @property
    def is_warm(self) -> bool:
        """Whether its values are used."""
        return self.num_steps >= self._config.warmup_steps

    @torch.no_grad()
    def judge(
        self, model: PreTrainedModel, samples: Sequence[TrainSample], micro_batch_tokens: int
    ) -> Judged:
        """Values, targets and advantages of a step; the head and its scales are unchanged.

        Raises:
            ValueError: a sample comes without what it is worth.
        """
        for sample in samples:
            if sample.worth is None:
                raise ValueError(f"sample {sample.sample_id!r} has no worth: a critic needs it")
        states = _states(model, samples, micro_batch_tokens)
        values = self.values(states)
        scales = {
            role: scale.seen(np.array([s.worth for s in samples if s.role is role], np.float64))
            for role, scale in self.scales.items()
        }
        lengths = [s.trace.num_trained_tokens for s in samples]
        parts = torch.split(values.double(), lengths)
        advantages = [
            self._advantages(sample, part.numpy(force=True), scales[sample.role])
            for sample, part in zip(samples, parts, strict=True)
        ]
        targets = values.double() + torch.from_numpy(np.concatenate([*advantages, np.empty(0)]))
        judged = self._normalised(samples, advantages) if self.is_warm else list(samples)
        return Judged(judged, states, values, targets.float(), scales)

    def learn(self, judged: Judged) -> dict[str, float]:
        """Train the head on a step that was applied; figures of before it learned from it.

        A head that is not finite afterwards is put back as it was, and counted.
        """
        old, targets = judged.values, judged.targets
        found: dict[str, float] = {}
        if not old.numel():
            return found
        left = float((targets - old).var(correction=0))
        spread = float(targets.var(correction=0))
        found["critic/loss"] = float(value_loss(old, old, targets, 0.0).mean())
        found["critic/value_mean"] = float(old.mean())
        if spread > 0:
            found["critic/explained_variance"] = 1.0 - left / spread
        before = self._tensors()
        for _ in range(self._config.passes):
            self._optimizer.zero_grad(set_to_none=True)
            new = self.values(judged.states)
            value_loss(new, old, targets, self._config.clip_value).mean().backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        moved = (self.values(judged.states) - old).abs().detach()
        if self._config.clip_value > 0:
            found["critic/value_clip_share"] = float(
                (moved > self._config.clip_value).float().mean()
            )
        is_finite = bool(torch.isfinite(self._weight).all())
        found["critic/nonfinite"] = 0.0 if is_finite else 1.0
        if not is_finite:
            self._put(before)
            return found
        self.scales = dict(judged.scales)
        self.num_steps += 1
        for role, scale in self.scales.items():
            if scale.count:
                found[f"critic/return_mean/{role}"] = scale.mean
                found[f"critic/return_deviation/{role}"] = scale.deviation
        return found

    def save(self, folder: Path) -> None:
        """Write head, moments and scales; not durable by itself."""
        save_file(self._tensors(), folder / CRITIC_TENSORS)

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote, to the last bit.

        Raises:
            WeightsError: the checkpoint is of a run without a critic, or of another model.
        """
        path = folder / CRITIC_TENSORS
        if not path.is_file():
            raise WeightsError(
                f"checkpoint {folder} has no {CRITIC_TENSORS}: it was written with learner.critic."
                "enabled=false; set it as the run had it, or start a new run from this folder"
            )
        tensors = load_file(path)
        if tensors["weight"].shape != self._weight.shape:
            raise WeightsError(
                f"{path}: a value head of {tensors['weight'].numel() - 1} inputs, the model has "
                f"{self._weight.numel() - 1}"
            )
        self._put(tensors)

    def _advantages(self, sample: TrainSample, values: Floats, scale: ReturnScale) -> Floats:
        config = self._config
        assert sample.worth is not None  # `judge` has looked
        final = scale.scaled(sample.worth, config.clip_return, normalise=config.normalise_returns)
        return generalised_advantages(values, final, config.gamma, config.gae_lambda)

    def _normalised(
        self, samples: Sequence[TrainSample], advantages: list[Floats]
    ) -> list[TrainSample]:
        """The samples with their advantages, normalised over each role's tokens when asked."""
        found = list(advantages)
        for role in Role if self._config.normalise_advantages else ():
            chosen = [i for i, sample in enumerate(samples) if sample.role is role]
            if chosen:
                whole = normalised(np.concatenate([found[i] for i in chosen]))
                ends = np.cumsum([len(found[i]) for i in chosen])[:-1]
                for index, part in zip(chosen, np.split(whole, ends), strict=True):
                    found[index] = part
        return [
            replace(sample, advantage=float(part.mean()), token_advantages=part.astype(np.float32))
            for sample, part in zip(samples, found, strict=True)
        ]

    def _tensors(self) -> dict[str, Tensor]:
        scales = [(s.count, s.mean, s.squares) for s in self.scales.values()]
        found = {
            "weight": self._weight.detach().clone(),
            "scales": torch.tensor(scales, dtype=torch.float64),
            "num_steps": torch.tensor(self.num_steps),
        }
        moments = self._optimizer.state.get(self._weight, {})
        return found | {f"adam.{key}": value.clone() for key, value in moments.items()}

    def _put(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            self._weight.copy_(tensors["weight"])
        rows = tensors["scales"].tolist()
        self.scales = {role: ReturnScale(*row) for role, row in zip(Role, rows, strict=True)}
        self.num_steps = int(tensors["num_steps"])
        moments = {k.removeprefix("adam."): v for k, v in tensors.items() if k.startswith("adam.")}
        if moments:
            self._optimizer.state[self._weight] = {k: v.clone() for k, v in moments.items()}
        else:
            self._optimizer.state.pop(self._weight, None)


def _states(
    model: PreTrainedModel, samples: Sequence[TrainSample], micro_batch_tokens: int
) -> Tensor:
    """[N, D] hidden states that predict the trained tokens, in the order of the samples."""
    found: dict[int, Tensor] = {}
    plan = plan_micro_batches([num_input_tokens(s) for s in samples], micro_batch_tokens)
    temperatures = dict.fromkeys(Role, 1.0)
    for indices in plan:
        micro = build_micro_batch([samples[i] for i in indices], temperatures)
        states = model.base_model(
            input_ids=micro.token_ids_RL, attention_mask=micro.attention_mask_RL, use_cache=False
        ).last_hidden_state
        for row, index in enumerate(indices):
            found[index] = states[row, micro.columns[micro.rows == row]].float()
    if not found:
        return torch.empty(0, hidden_width(model))
    return torch.cat([found[i] for i in range(len(samples))])


def hidden_width(model: PreTrainedModel) -> int:
    """Width of the hidden states that go into the output head."""
    width = getattr(model.config.get_text_config(), "hidden_size", None)
    if width is None:
        weight = model.get_input_embeddings().weight
        assert isinstance(weight, Tensor)
        width = weight.shape[1]
    return int(width)
