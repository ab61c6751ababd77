"""Log-probabilities of a micro-batch's trained tokens under a model, with little memory.

The model's body reads the tokens; only the hidden states that predict a trained token go through
the output head, a chunk at a time (`grpo/chunked.py`). That needs a model whose logits are a linear
head on its body's last hidden states; `why_whole` says why another one is run as a whole.
"""

from __future__ import annotations

import inspect
import logging
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from spade_async.grpo.batch import MicroBatch
from spade_async.grpo.chunked import CHUNK_LOGITS, head_logprobs
from spade_async.grpo.loss import token_logprobs
from spade_async.learner.experts import Load, Routers

log = logging.getLogger(__name__)

_RESHAPED = ("final_logit_softcapping", "logit_scale", "logits_scaling", "logit_softcap")
"""Settings by which architectures change the logits behind the head; 1 or nothing changes none."""


class Scores(Protocol):
    """What a scorer of micro-batches can do."""

    def __call__(self, micro: MicroBatch, *, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
        """[N] log-probabilities, [N] entropies of the trained tokens."""


class TokenScorer(nn.Module):
    """Scores the trained tokens of micro-batches under one model, whose weights may change.

    A module, so that sharded weights are gathered around a call of it (`sharding.py`): the model
    itself is never called then.
    """

    def __init__(self, model: PreTrainedModel):
        """Look at the model; two short forward passes find out whether its head can be split."""
        super().__init__()
        self._model = model
        self.routers = Routers(model)
        self.load: Load | None = None
        """Where the choices of the routers are counted."""
        self.why_whole = why_whole(model)
        """Why all logits of a micro-batch are made at once; None when they are not."""
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        if self.why_whole is not None:
            log.info(
                "%s: logits are not computed in chunks, memory grows with vocabulary x length: %s",
                type(model).__name__,
                self.why_whole,
            )

    def forward(self, micro: MicroBatch, *, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
        """[N] log-probabilities with gradient, [N] entropies without one unless asked."""
        with self.routers.during(micro, self.load):
            logprobs, entropies = self._score(micro, entropy_gradient)
        # FSDP2 hooks on to what is given, and warns of views.
        return logprobs.clone(), entropies.clone()

    def _score(self, micro: MicroBatch, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
        if self.why_whole is not None:
            logits_NV = self._whole(micro)
            return token_logprobs(
                logits_NV, micro.targets, micro.temperatures, entropy_gradient=entropy_gradient
            )
        head = _head(self._model)
        states = self._model.base_model(
            input_ids=micro.token_ids_RL, attention_mask=micro.attention_mask_RL, use_cache=False
        ).last_hidden_state
        return head_logprobs(
            states[micro.rows, micro.columns],
            head.weight,
            head.bias,
            micro.targets,
            micro.temperatures,
            entropy_gradient=entropy_gradient,
            chunk_logits=CHUNK_LOGITS,
        )

    def _whole(self, micro: MicroBatch) -> Tensor:
        first = 0
        kept = {}
        if self._keeps_logits:
            # Logits of the shared prompt columns are never used: with a large vocabulary they
            # would be most of the memory.
            first = int(micro.columns.min())
            kept["logits_to_keep"] = torch.arange(first, int(micro.columns.max()) + 1)
        output = self._model(
            input_ids=micro.token_ids_RL,
            attention_mask=micro.attention_mask_RL,
            use_cache=False,
            **kept,
        )
        logits: Tensor = output.logits[micro.rows, micro.columns - first]
        return logits


def _head(model: PreTrainedModel) -> Any:
    return model.get_output_embeddings()  # type: ignore[no-untyped-call]


@torch.no_grad()
def why_whole(model: PreTrainedModel) -> str | None:
    """Why the logits are not a linear head on the body's hidden states; None when they are."""
    head, body = _head(model), model.base_model
    if not isinstance(head, nn.Linear):
        return f"its output head is {type(head).__name__}, not Linear"
    if body is model:
        return "it has no base model apart from its head"
    config: Any = model.config.get_text_config()
    for name in _RESHAPED:
        if getattr(config, name, None) not in (None, 1, 1.0):
            return f"config.{name}={getattr(config, name)} changes the logits behind the head"
    ids = torch.arange(min(8, head.out_features), device=head.weight.device)[None]
    mask = torch.ones_like(ids)
    try:
        states = body(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        split = F.linear(states, head.weight, head.bias)
    except (AttributeError, TypeError, ValueError, RuntimeError) as cause:
        return f"its base model gives no hidden states for its head ({cause})"
    whole = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    if split.shape != whole.shape:
        return f"its head gives {tuple(split.shape)} where the model gives {tuple(whole.shape)}"
    allowed = 1e-6 * float(whole.abs().max())
    if not torch.allclose(split, whole, rtol=1e-6, atol=allowed, equal_nan=True):
        return "its logits are not its output head on its base model's last hidden states"
    return None
