"""`grounding.*`: what conditions the designer."""

from __future__ import annotations

from pydantic import Field

from spade_async.config.section import Section


class GroundingConfig(Section):
    """Corpus and memory that condition the designer."""

    corpus: str = "stdlib-docstrings"
    """"stdlib-docstrings", or a JSON-lines file with `text` per line ("scripted": eight documents
    that say nothing)."""
    max_document_words: int = Field(200, ge=10, le=20_000)
    """A longer document is cut."""
    memory_capacity: int = Field(200, ge=0, le=10_000_000)
    """Most environments that are remembered."""
    num_exemplars: int = Field(2, ge=0, le=16)
    """Environments from memory shown to the designer."""
    diversity_window: int = Field(64, ge=2, le=1024)
    """Last valid designs over which diversity/* is measured; see docs/metrics.md."""
