"""Folders of models that are made once: whole or made again, by one maker at a time.

Layout: ``$XDG_CACHE_HOME/spade-async/NAME-KEY/`` (or under ``~/.cache``) holds an ordinary Hugging
Face model folder and `FILES`, the sha256 of every other file. Makers work in a temporary folder
beside it and rename; a lock file keeps two makers from doing the same work, and tells a temporary
folder of a living maker from one that a killed maker left. What KEY covers is the caller's matter.
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
from pathlib import Path

from spade_async.errors import ConfigError

log = logging.getLogger(__name__)

FILES = "files.json"
"""Name of the digest file: {file name: sha256 hex}."""

_PARTIAL = ".partial-"

Progress = Callable[[float, str], None]
"""Told (share in [0, 1], what is being done)."""


def cache_root() -> Path:
    """Folder of all cached models; not created here."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spade-async"


def find(folder: Path, name: str) -> Path | None:
    """The folder when it is whole, else None (a damaged one is reported in one line).

    Args:
        folder: where the model is or would be.
        name: of the model, for the line.
    """
    if not folder.is_dir():
        return None
    problem = _problem(folder)
    if problem is None:
        return folder
    log.warning("%s model in %s is damaged (%s): it is made again", name, folder, problem)
    return None


def make(folder: Path, name: str, progress: Progress, fill: Callable[[Path], None]) -> Path:
    """The folder, made first when it is missing or damaged; `fill` writes into an empty one.

    Raises:
        ConfigError: the cache folder cannot be written.
    """
    sweep()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_suffix(".lock"), name, progress):
            return find(folder, name) or _fill(folder, fill)
    except OSError as cause:
        raise ConfigError(
            f"cache folder {str(folder.parent)!r} cannot be written ({cause}); "
            "set XDG_CACHE_HOME to a folder that can"
        ) from cause


def sweep() -> None:
    """Remove what makers left that were killed by -9, whatever they made.

    A maker holds the lock of its model as long as it lives.
    """
    for partial in cache_root().glob(f"*{_PARTIAL}*"):
        lock = partial.with_name(partial.name.partition(_PARTIAL)[0] + ".lock")
        # Somebody else's cache, or gone meanwhile: never a reason not to start.
        with contextlib.suppress(OSError), lock.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(partial, ignore_errors=True)
            log.info("removed %s: whoever made it is dead", partial)


def _fill(folder: Path, fill: Callable[[Path], None]) -> Path:
    working = Path(tempfile.mkdtemp(prefix=f"{folder.name}{_PARTIAL}", dir=folder.parent))
    try:
        fill(working)
        (working / FILES).write_text(json.dumps(_digests(working), indent=1))
        if folder.exists():
            shutil.rmtree(folder)
        working.rename(folder)
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return folder


def _digests(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.iterdir() if path.name != FILES)
    return {path.name: _digest(path) for path in paths}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
def _locked(path: Path, name: str, progress: Progress) -> Iterator[None]:
    """Hold the lock file; waits for another maker of the same model and says so."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(0.0, f"another process is making the {name} model; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
