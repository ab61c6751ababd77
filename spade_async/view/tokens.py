"""The tokens of one sample: which weights sampled each, and what it weighed in its learner step.

What the generator said of a token is in its trace. What the learner said of it is in the ledger
for samples trained since those figures are kept; nothing is computed here, so no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spade_async.errors import SpadeError
from spade_async.ledger.looks import Learned
from spade_async.types import NO_VERSION, PolicyVersion, TokenTrace
from spade_async.view.run import ViewedRun

NOT_KEPT = (
    "the tokens are not in the ledger: those of hinted episodes never are, those of trained "
    "samples leave it when no fall-back can need them"
)
NO_WEIGHTS = (
    "the learner told none for this sample: it was not trained, or its advantage was 0, or the "
    "ledger is older than these figures"
)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token."""

    token_id: int
    text: str | None
    """None without a tokenizer; "" for a control token."""
    is_sampled: bool
    """False: prompt, or text of the environment."""
    version: str | None
    """Weights that sampled it, "branch.step"; None when it was not sampled."""
    generator_logprob: float | None
    learner_logprob: float | None = None
    """Under the weights that trained it, at the sampling temperature."""
    weight: float | None = None
    """What the correction rule multiplied its advantage by; 0 is a token that was masked."""


@dataclass(frozen=True, slots=True)
class TokenView:
    """All tokens of a sample, or why there are none."""

    sample_id: str
    rows: tuple[TokenRow, ...]
    missing: str | None
    """Why there are no tokens; None when there are."""
    no_weights: str | None
    """Why the learner's side is missing; None when it is here."""
    starts: tuple[int, ...] = ()
    """Where each token sequence begins when there are several (a turn with a prompt of its own)."""

    @property
    def versions(self) -> list[str]:
        """Versions that sampled some of it, in order of their first token."""
        return list(dict.fromkeys(row.version for row in self.rows if row.version is not None))

    def as_dict(self) -> dict[str, Any]:
        """For JSON: one list per column."""
        return {
            "sample_id": self.sample_id,
            "missing": self.missing,
            "no_weights": self.no_weights,
            "versions_used": self.versions,
            "starts": list(self.starts),
            "token_ids": [row.token_id for row in self.rows],
            "texts": [row.text for row in self.rows],
            "sampled": [row.is_sampled for row in self.rows],
            "versions": [row.version for row in self.rows],
            "generator_logprobs": [row.generator_logprob for row in self.rows],
            "learner_logprobs": [row.learner_logprob for row in self.rows],
            "weights": [row.weight for row in self.rows],
        }


class Texts:
    """Token ids to texts by the tokenizer of the run; loads it at the first use."""

    def __init__(self, run: ViewedRun) -> None:
        self._folders = run.model_folders
        self._codec: Any = None
        self.problem: str | None = None
        """Why there is no tokenizer."""

    def of(self, ids: list[int]) -> list[str] | None:
        """One text per token, together the decoded text; None without a tokenizer."""
        codec = self._load()
        return None if codec is None else pieces(codec.decode, ids)

    def _load(self) -> Any:
        if self._codec is None and self.problem is None:
            from spade_async.engine.tokens import ChatTokens

            tried: list[str] = []
            for folder in self._folders:
                if not (Path(folder) / "tokenizer.json").is_file():
                    continue
                try:
                    self._codec = ChatTokens.from_folder(folder)
                    return self._codec
                except SpadeError as fault:
                    tried.append(str(fault))
            self.problem = tried[0] if tried else "no model folder and no checkpoint is here"
        return self._codec


def pieces(decode: Any, ids: list[int]) -> list[str]:
    """Text that each token adds to what stands before it; together they are the whole text.

    A character that takes several tokens belongs to the last of them. Earlier tokens are decoded
    again only back to the last clean boundary, so the work stays linear.
    """
    found: list[str] = []
    start, done = 0, 0
    for end in range(1, len(ids) + 1):
        text = decode(ids[start:end])
        is_open = text.endswith("\ufffd") and end - start < _MOST_OPEN and end < len(ids)
        if is_open:
            found.append("")
            continue
        found.append(text[done:])
        done = len(text)
        if end - start >= _WINDOW:
            start = end - 1
            done = len(decode(ids[start:end]))
    return found


_WINDOW = 8
"""Tokens decoded together before the window moves on."""
_MOST_OPEN = 32
"""A text that is broken for so long is no open character but broken."""


def view(run: ViewedRun, texts: Texts, sample_id: str) -> TokenView:
    """Tokens of one sample."""
    found = run.ledger.look(sample_id)
    if found is None:
        return TokenView(sample_id, (), NOT_KEPT, None)
    trace, learned = found.trace, found.learned
    return TokenView(
        sample_id,
        tuple(_rows(trace, texts.of(trace.token_ids.tolist()), learned)),
        None,
        NO_WEIGHTS if learned is None else None,
        trace.starts,
    )


def _rows(
    trace: TokenTrace,
    texts: list[str] | None,
    learned: Learned | None,
) -> list[TokenRow]:
    rows = []
    sampled = 0
    for i, token_id in enumerate(trace.token_ids.tolist()):
        is_sampled = bool(trace.loss_mask[i])
        packed = int(trace.versions[i])
        learner = weight = None
        if is_sampled and learned is not None and sampled < len(learned.weights):
            learner = number(learned.logprobs[sampled])
            weight = number(learned.weights[sampled])
        sampled += is_sampled
        rows.append(
            TokenRow(
                token_id,
                None if texts is None else texts[i],
                is_sampled,
                str(PolicyVersion.unpack(packed)) if is_sampled and packed != NO_VERSION else None,
                number(trace.generator_logprobs[i]) if is_sampled else None,
                learner,
                weight,
            )
        )
    return rows


def number(value: Any) -> float | None:
    """A finite number, else None: JSON has no NaN."""
    return float(value) if np.isfinite(value) else None
