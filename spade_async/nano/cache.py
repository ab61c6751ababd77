"""The cache of warm-started nano models: one folder per content key, complete or made again.

Layout: ``$XDG_CACHE_HOME/spade-async/nano-KEY/`` (or under ``~/.cache``) holds an ordinary Hugging
Face model folder and `FILES`, the sha256 of every other file. KEY covers the nano source files that
decide the weights, the versions of torch and transformers, the seed and the size. Makers work in a
temporary folder beside it and rename; a lock file keeps two makers from doing the same work, and
tells a temporary folder of a living maker from one that a killed maker left.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from importlib.metadata import version
from pathlib import Path

from spade_async.errors import ConfigError

log = logging.getLogger(__name__)

FILES = "files.json"
"""Name of the digest file: {file name: sha256 hex}."""

_PARTIAL = ".partial-"
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


Maker = Callable[[Path, int, WarmStartSize, Callable[[float, str], None]], None]
"""Writes a model folder: (folder, seed, size, progress)."""


def cache_root() -> Path:
    """Folder of all cached models; not created here."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spade-async"


def folder_of(seed: int, size: WarmStartSize) -> Path:
    """Where the model of that seed and size is or would be."""
    digest = hashlib.sha256(repr((seed, astuple(size))).encode())
    digest.update(repr([version(package) for package in ("torch", "transformers")]).encode())
    here = Path(__file__).parent
    for name in _SOURCES:
        digest.update((here / name).read_bytes())
    return cache_root() / f"nano-{digest.hexdigest()[:20]}"


def find(seed: int, size: WarmStartSize) -> Path | None:
    """The cached folder when it is whole, else None (a damaged one is reported in one line)."""
    folder = folder_of(seed, size)
    if not folder.is_dir():
        return None
    problem = _problem(folder)
    if problem is None:
        return folder
    log.warning("nano model in %s is damaged (%s): it is made again", folder, problem)
    return None


def make(
    seed: int, size: WarmStartSize, progress: Callable[[float, str], None], maker: Maker
) -> Path:
    """The cached folder, made first by `maker` when it is missing or damaged.

    Raises:
        ConfigError: the cache folder cannot be written.
    """
    folder = folder_of(seed, size)
    sweep()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_suffix(".lock"), progress):
            ready = find(seed, size)
            return ready or _fill(folder, seed, size, progress, maker)
    except OSError as cause:
        raise ConfigError(
            f"cache folder {str(folder.parent)!r} cannot be written ({cause}); "
            "set XDG_CACHE_HOME to a folder that can"
        ) from cause


def sweep() -> None:
    """Remove what makers left that were killed by -9, whatever they made.

    A maker holds the lock of its model as long as it lives.
    """
    for partial in cache_root().glob(f"nano-*{_PARTIAL}*"):
        lock = partial.with_name(partial.name.partition(_PARTIAL)[0] + ".lock")
        # Somebody else's cache, or gone meanwhile: never a reason not to start.
        with contextlib.suppress(OSError), lock.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(partial, ignore_errors=True)
            log.info("removed %s: whoever made it is dead", partial)


def _fill(
    folder: Path,
    seed: int,
    size: WarmStartSize,
    progress: Callable[[float, str], None],
    maker: Maker,
) -> Path:
    working = Path(tempfile.mkdtemp(prefix=f"{folder.name}{_PARTIAL}", dir=folder.parent))
    try:
        maker(working, seed, size, progress)
        (working / FILES).write_text(json.dumps(_digests(working), indent=1))
        if folder.exists():
            shutil.rmtree(folder)
        working.rename(folder)
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return folder


def _digests(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.iterdir() if path.name != FILES)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _problem(folder: Path) -> str | None:
    """What is wrong with a cached folder, or None."""
    try:
        wanted = json.loads((folder / FILES).read_text())
        found = _digests(folder)
    except (OSError, ValueError) as cause:
        return f"{FILES}: {cause}"
    if not isinstance(wanted, dict):
        return f"{FILES} is not a table"
    wrong = [name for name, digest in wanted.items() if found.get(name) != digest]
    return f"{wrong[0]} does not match its digest" if wrong else None


@contextmanager
def _locked(path: Path, progress: Callable[[float, str], None]) -> Iterator[None]:
    """Hold the lock file; waits for another maker of the same model and says so."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(0.0, "another process is making the nano model; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
