"""`grounding.*`: what conditions the designer."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from spade_async.config.corpus_source import CorpusSource, read_corpus
from spade_async.config.section import Section


class GroundingConfig(Section):
    """Corpus and memory that condition the designer."""

    corpus: Annotated[str | tuple[CorpusSource, ...], BeforeValidator(read_corpus)] = (
        "stdlib-docstrings"
    )
    """"stdlib-docstrings", or a path: JSON lines (also .gz, .zst), parquet, a Hugging Face dataset
    folder, a folder of texts; or a list of {path, weight, format} to mix them. See
    docs/grounding.md ("scripted": eight documents that say nothing)."""
    max_document_words: int = Field(200, ge=10, le=20_000)
    """A longer document is cut."""
    memory_capacity: int = Field(200, ge=0, le=10_000_000)
    """Most environments that are remembered."""
    num_exemplars: int = Field(2, ge=0, le=16)
    """Environments from memory shown to the designer."""
    num_avoid: int = Field(1, ge=0, le=16)
    """Further ones shown as what to avoid: mastered ones, and ones that were copied."""
    near_duplicate: float = Field(0.9, gt=0.5, le=1.0)
    """Similarity of two programs' syntax trees from which one is a near copy of the other: a design
    that is one of a remembered environment is not played. 1: only programs of one skeleton are
    copies, and they are played, and share one place in memory."""
    diversity_window: int = Field(64, ge=2, le=1024)
    """Last valid designs over which diversity/* is measured; see docs/metrics.md."""
