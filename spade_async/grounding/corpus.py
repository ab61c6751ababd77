"""The corpus that grounds the designer (step 1): documents in a seeded order behind a cursor.

Every document is used once before any is used twice. Where documents come from is
`stdlib_docstrings` and `json_lines`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade_async.errors import ConfigError
from spade_async.grounding.document import BadRow, Document
from spade_async.grounding.json_lines import read_json_lines
from spade_async.grounding.stdlib_docstrings import NAME as STDLIB_DOCSTRINGS
from spade_async.grounding.stdlib_docstrings import stdlib_documents
from spade_async.seeds import derive

__all__ = ["BadRow", "Corpus", "Document", "open_corpus"]


SCRIPTED = "scripted"
"""Eight documents that say nothing, for scripted runs: reading the others takes time."""


@dataclass(frozen=True, slots=True)
class _Cursor:
    epoch: int
    position: int


class Corpus:
    """Documents in an order derived from the run seed and the epoch, and a cursor into it."""

    def __init__(
        self,
        documents: Sequence[Document],
        *,
        name: str,
        seed: int,
        bad_rows: Sequence[BadRow] = (),
    ) -> None:
        """Start at the first document of epoch 0.

        Raises:
            ConfigError: there is no document.
        """
        if not documents:
            raise ConfigError(
                f"grounding.corpus={name!r} holds no usable document ({len(bad_rows)} bad rows): "
                f"give a JSON-lines file with `text` per line"
            )
        self.name = name
        self.bad_rows = tuple(bad_rows)
        """Rows that were skipped, each with its reason."""
        self._documents = tuple(documents)
        self._seed = seed
        self._digest = hashlib.sha256(
            "\0".join(f"{d.document_id}\0{d.text}" for d in documents).encode()
        ).hexdigest()[:16]
        self._cursor = _Cursor(0, 0)
        self._order = self._order_of(0)

    def __len__(self) -> int:
        return len(self._documents)

    @property
    def epoch(self) -> int:
        """How many times every document has been used."""
        return self._cursor.epoch

    def next(self) -> Document:
        """The document under the cursor, which moves on; a new order begins after the last one."""
        document = self._documents[self._order[self._cursor.position]]
        epoch, position = self._cursor.epoch, self._cursor.position + 1
        if position == len(self._documents):
            epoch, position = epoch + 1, 0
            self._order = self._order_of(epoch)
        self._cursor = _Cursor(epoch, position)
        return document

    def state(self) -> dict[str, Any]:
        """The cursor, JSON-able, for the ledger."""
        return {
            "epoch": self._cursor.epoch,
            "position": self._cursor.position,
            "digest": self._digest,
            "num_documents": len(self),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put the cursor back.

        Raises:
            ConfigError: the documents are not those the cursor was taken from.
        """
        if state["digest"] != self._digest:
            raise ConfigError(
                f"grounding.corpus={self.name!r} changed since this run began "
                f"({state['num_documents']} documents then, {len(self)} now, digest "
                f"{state['digest']} then, {self._digest} now): put the old one back (for "
                f"{STDLIB_DOCSTRINGS!r}: the same Python) or start a new run"
            )
        self._cursor = _Cursor(int(state["epoch"]), int(state["position"]))
        self._order = self._order_of(self._cursor.epoch)

    def _order_of(self, epoch: int) -> list[int]:
        order = list(range(len(self._documents)))
        random.Random(derive(self._seed, "corpus", epoch)).shuffle(order)
        return order


def open_corpus(corpus: str, *, max_document_words: int, seed: int) -> Corpus:
    """The corpus that `grounding.corpus` names: one of ours, or a JSON-lines file.

    Args:
        corpus: value of the key.
        max_document_words: longer documents are cut.
        seed: run seed.

    Raises:
        ConfigError: the file cannot be read, or no document is usable.
    """
    if corpus == STDLIB_DOCSTRINGS:
        return Corpus(stdlib_documents(max_document_words), name=corpus, seed=seed)
    if corpus == SCRIPTED:
        few = [Document(f"scripted:{i}", f"document {i}") for i in range(8)]
        return Corpus(few, name=corpus, seed=seed)
    documents, bad_rows = read_json_lines(Path(corpus), max_document_words=max_document_words)
    return Corpus(documents, name=corpus, seed=seed, bad_rows=bad_rows)
