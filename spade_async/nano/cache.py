"""Where the warm-started nano model of a seed and size lies, and its making (`model_cache`).

The key covers the nano source files that decide the weights, the versions of torch and
transformers, the seed and the size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import astuple, dataclass
from importlib.metadata import version
from pathlib import Path

from spade_async.disk import model_cache
from spade_async.disk.model_cache import FILES, Progress, cache_root, sweep

__all__ = ["FILES", "WarmStartSize", "cache_root", "find", "folder_of", "make", "sweep"]

NAME = "nano"
_SOURCES = (
    "chat.py",
    "families.py",
    "grammar.py",
    "lessons.py",
    "model.py",
    "muon.py",
    "tokenizer.py",
    "topics.py",
    "vocabulary.py",
    "warm_start.py",
)


@dataclass(frozen=True, slots=True)
class WarmStartSize:
    """How long the warm start is; the default is the shipped one."""

    steps: int = 500
    """Optimiser steps."""
    programs: int = 16
    """Designer examples per step."""
    answers: int = 96
    """Agent examples per step."""

    def arguments(self) -> list[str]:
        """Command-line arguments of ``python -m spade_async.nano`` for this size."""
        return [
            *("--steps", str(self.steps)),
            *("--programs", str(self.programs)),
            *("--answers", str(self.answers)),
        ]


Maker = Callable[[Path, int, WarmStartSize, Progress], None]
"""Writes a model folder: (folder, seed, size, progress)."""


def folder_of(seed: int, size: WarmStartSize) -> Path:
    """Where the model of that seed and size is or would be."""
    digest = hashlib.sha256(repr((seed, astuple(size))).encode())
    digest.update(repr([version(package) for package in ("torch", "transformers")]).encode())
    here = Path(__file__).parent
    for name in _SOURCES:
        digest.update((here / name).read_bytes())
    return cache_root() / f"{NAME}-{digest.hexdigest()[:20]}"


def find(seed: int, size: WarmStartSize) -> Path | None:
    """The cached folder when it is whole, else None (a damaged one is reported in one line)."""
    return model_cache.find(folder_of(seed, size), NAME)


def make(seed: int, size: WarmStartSize, progress: Progress, maker: Maker) -> Path:
    """The cached folder, made first by `maker` when it is missing or damaged.

    Raises:
        ConfigError: the cache folder cannot be written.
    """
    folder = folder_of(seed, size)
    return model_cache.make(
        folder, NAME, progress, lambda working: maker(working, seed, size, progress)
    )
