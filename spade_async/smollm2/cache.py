"""Where the warm-started SmolLM2 of a seed and size lies, and its making."""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass
from importlib.metadata import version
from pathlib import Path

from spade_async.disk import model_cache
from spade_async.disk.model_cache import Progress, cache_root

NAME = "smollm2"
_SOURCES = ("convert.py", "domain.py", "lessons.py", "warm_start.py")
_NANO_SOURCES = ("families.py", "grammar.py", "topics.py")


@dataclass(frozen=True, slots=True)
class Size:
    """How long the warm start is; 0 steps converts only."""

    steps: int = 48
    """Optimiser steps: after 16 one design in thirty was valid."""
    programs: int = 8
    """Designer examples per step."""
    answers: int = 12
    """Agent examples per step."""

    def arguments(self) -> list[str]:
        """Command-line arguments of ``python -m spade_async.smollm2`` for this size."""
        return [
            *("--steps", str(self.steps)),
            *("--programs", str(self.programs)),
            *("--answers", str(self.answers)),
        ]


def folder_of(seed: int, size: Size) -> Path:
    """Where the model of that seed and size is or would be."""
    digest = hashlib.sha256(repr((seed, astuple(size))).encode())
    digest.update(repr([version(package) for package in ("torch", "transformers")]).encode())
    here = Path(__file__).parent
    for path in (*(here / n for n in _SOURCES), *(here.parent / "nano" / n for n in _NANO_SOURCES)):
        digest.update(path.read_bytes())
    return cache_root() / f"{NAME}-{digest.hexdigest()[:20]}"


def find(seed: int, size: Size) -> Path | None:
    """The cached folder when it is whole, else None (a damaged one is reported in one line)."""
    return model_cache.find(folder_of(seed, size), NAME)


def make(seed: int, size: Size, progress: Progress) -> Path:
    """The cached folder, made first when it is missing or damaged.

    Raises:
        ConfigError: the package is missing, or the cache folder cannot be written.
    """
    from spade_async.smollm2.warm_start import warm_start

    return model_cache.make(
        folder_of(seed, size),
        NAME,
        progress,
        lambda folder: warm_start(folder, seed, size, progress),
    )
