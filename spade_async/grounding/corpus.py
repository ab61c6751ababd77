"""The corpus that grounds the designer (step 1): sources of documents, mixed by weight.

Every document of a source is used once before any of it is used twice. The coordinator alone draws,
so that holds for all generators together; the cursor is in its ledger, so it holds over restarts.
What lies at a path is `places`, how a row is read `row_rule`, the order `source`.
"""

from __future__ import annotations

import bisect
import itertools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spade_async.config.corpus_source import CorpusSource
from spade_async.config.schema import Config
from spade_async.errors import ConfigError
from spade_async.grounding.document import BadRow, Document
from spade_async.grounding.places import open_place
from spade_async.grounding.row_rule import RowRule
from spade_async.grounding.source import BlockSource, ListSource, Source
from spade_async.grounding.stdlib_docstrings import NAME as STDLIB_DOCSTRINGS
from spade_async.grounding.stdlib_docstrings import stdlib_documents
from spade_async.seeds import derive

log = logging.getLogger(__name__)

__all__ = ["BadRow", "Corpus", "Document", "check_corpus", "open_corpus"]

SCRIPTED = "scripted"
"""Eight documents that say nothing, for scripted runs: reading the others takes time."""


class Corpus:
    """Sources, each with a weight; which one a draw is from derives from its number."""

    def __init__(self, sources: Sequence[tuple[Source, float]], *, seed: int) -> None:
        self._sources = [source for source, _ in sources]
        self._weights = [weight for _, weight in sources]
        self._lost: set[int] = set()
        """Sources that cannot be read any more."""
        self._seed = seed
        self._num_drawn = 0

    @property
    def epoch(self) -> int:
        """How many times every document of every source has been used."""
        return min(source.epoch for source in self._sources)

    @property
    def bad_rows(self) -> tuple[BadRow, ...]:
        """The first rows that were skipped, each with its reason."""
        return tuple(row for source in self._sources for row in source.bad_rows)

    @property
    def num_bad(self) -> int:
        """Rows skipped so far."""
        return sum(source.num_bad for source in self._sources)

    def next(self) -> Document:
        """The next document of the source whose turn it is.

        A source that cannot be read any more is left out, as long as there is another.

        Raises:
            ConfigError: none can.
        """
        number, self._num_drawn = self._num_drawn, self._num_drawn + 1
        if len(self._sources) == 1:
            return self._sources[0].next()
        while True:
            live = [i for i in range(len(self._sources)) if i not in self._lost]
            ends = list(itertools.accumulate(self._weights[i] for i in live))
            share = derive(self._seed, "corpus source", number) / 2**63
            index = live[min(bisect.bisect_right(ends, share * ends[-1]), len(live) - 1)]
            source = self._sources[index]
            try:
                document = source.next()
            except ConfigError as fault:
                if len(live) == 1:
                    raise
                self._lost.add(index)
                log.error("%s; the run goes on with the other sources", fault)
                continue
            return Document(f"{source.name}: {document.document_id}", document.text)

    def metrics(self) -> dict[str, float]:
        """Tagged numbers (docs/metrics.md)."""
        return {
            "grounding/documents_used": float(self._num_drawn),
            "grounding/bad_rows": float(self.num_bad),
            "grounding/epoch": float(self.epoch),
        }

    def state(self) -> dict[str, Any]:
        """The cursors, JSON-able, for the ledger."""
        return {
            "num_drawn": self._num_drawn,
            "sources": [source.state() for source in self._sources],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put the cursors back; a cursor of one source from before there were more fits as well.

        Raises:
            ConfigError: the documents are not those the cursors were taken from.
        """
        if "sources" not in state:
            epoch, position = int(state["epoch"]), int(state["position"])
            drawn = epoch * int(state["num_documents"]) + position
            state = {"num_drawn": drawn, "sources": [state]}
        if len(state["sources"]) != len(self._sources):
            raise ConfigError(
                f"grounding.corpus has {len(self._sources)} sources, the run began with "
                f"{len(state['sources'])}: put the old ones back or start a new run"
            )
        for source, cursor in zip(self._sources, state["sources"], strict=True):
            source.restore(cursor)
        self._num_drawn = int(state["num_drawn"])


def open_corpus(
    corpus: str | Sequence[CorpusSource],
    *,
    max_document_words: int,
    seed: int,
    is_reference: bool = False,
) -> Corpus:
    """The corpus that `grounding.corpus` names.

    Args:
        corpus: value of the key.
        max_document_words: longer documents are cut.
        seed: run seed.
        is_reference: rows are read by the reference's rules (`run.compat`).

    Raises:
        ConfigError: a source cannot be read, or no document of it is usable.
    """
    rule = RowRule(max_document_words, is_reference)
    sources = [
        (_open_source(entry, rule, seed=own), entry.weight) for entry, own in _seeded(corpus, seed)
    ]
    return Corpus(sources, seed=seed)


def check_corpus(config: Config) -> None:
    """Refuse what `open_corpus` would refuse, before a run is begun; says nothing of bad rows.

    Of each file source so much is read as holds a first document: one round as a rule.

    Raises:
        ConfigError: as `open_corpus`.
    """
    rule = RowRule(config.grounding.max_document_words, config.run.compat == "reference")
    for entry, own in _seeded(config.grounding.corpus, config.run.seed):
        if entry.path not in (STDLIB_DOCSTRINGS, SCRIPTED):
            _open_source(entry, rule, seed=own, is_quiet=True)


def _seeded(corpus: str | Sequence[CorpusSource], seed: int) -> list[tuple[CorpusSource, int]]:
    """Each source with its seed; one source draws by the run's, as before there could be more."""
    return [
        (entry, seed if i == 0 else derive(seed, "corpus", "source", i))
        for i, entry in enumerate(_entries(corpus))
    ]


def _entries(corpus: str | Sequence[CorpusSource]) -> list[CorpusSource]:
    return [CorpusSource(path=corpus)] if isinstance(corpus, str) else list(corpus)


def _open_source(
    entry: CorpusSource, rule: RowRule, *, seed: int, is_quiet: bool = False
) -> Source:
    if entry.path == STDLIB_DOCSTRINGS:
        return ListSource(stdlib_documents(rule.max_words), name=entry.path, seed=seed)
    if entry.path == SCRIPTED:
        few = [Document(f"scripted:{i}", f"document {i}") for i in range(8)]
        return ListSource(few, name=entry.path, seed=seed)
    blocks = open_place(Path(entry.path), entry.format, passage_words=rule.max_words)
    return BlockSource(blocks, rule, name=entry.path, seed=seed, is_quiet=is_quiet)
