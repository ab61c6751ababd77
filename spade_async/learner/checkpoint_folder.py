"""Folders under ``checkpoints/``: their names, how one is committed, which ones are removed.

A folder with a checkpoint's name is whole and on disk: it is written under a hidden name, every
file is synced, a manifest of sizes and digests with them, then it is renamed and the parent synced.
What is in it, `checkpoint.py` knows. No torch.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spade_async.disk.manifest import write_manifest
from spade_async.types import PolicyVersion

SCHEMA = 2
"""Version of the learner's own files in a checkpoint; 1 had them as `*.safetensors`."""

STATE_FACTS = "learner_state.json"
"""Schema, branch and step."""

_NAME = re.compile(r"branch-(\d+)-step-(\d+)")
_HIDDEN = (".new-", ".old-")


def checkpoint_name(version: PolicyVersion) -> str:
    """Folder name of a version's checkpoint, e.g. ``branch-0-step-12``."""
    return f"branch-{version.branch}-step-{version.step}"


def checkpoint_version(name: str) -> PolicyVersion | None:
    """Inverse of `checkpoint_name`; None for any other name."""
    found = _NAME.fullmatch(name)
    return PolicyVersion(int(found[1]), int(found[2])) if found else None


def hidden_folder(root: Path, name: str) -> Path:
    """Where the files of a checkpoint are until it is committed."""
    return root / f".new-{name}"


@contextmanager
def committing(root: Path, name: str) -> Iterator[Path]:
    """Give the hidden folder to write into; at the end of the block it is durable as `name`.

    When the block raises, nothing of that name was made or changed.
    """
    root.mkdir(parents=True, exist_ok=True)
    temporary = hidden_folder(root, name)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        write_manifest(temporary)
        for path in temporary.rglob("*"):
            _sync(path)
        _sync(temporary)
    except BaseException:
        # Half of a checkpoint would keep a full disk full.
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _discard(root, name)
    os.rename(temporary, root / name)
    _sync(root)


def sweep(root: Path) -> None:
    """Remove what a killed learner left half written or half removed."""
    if not root.is_dir():
        return
    for path in root.iterdir():
        if path.name.startswith(_HIDDEN):
            shutil.rmtree(path, ignore_errors=True)


class Retention:
    """Which checkpoints are removed once a newer one is durable.

    The newest `keep` stay. What the ledger names at the start (`protected`) also stays until two
    newer ones of this process exist: the ledger commits to a checkpoint only after its report, so
    the last but one may still be the one it falls back to.
    """

    def __init__(self, root: Path, keep: int, protected: Collection[str]):
        self._root = root
        self._keep = keep
        self._protected = frozenset(protected)
        self._made: list[str] = []
        names = (p.name for p in root.iterdir()) if root.is_dir() else iter(())
        found = [(v.step, v.branch, n) for n in names if (v := checkpoint_version(n))]
        self._older = [name for _, _, name in sorted(found)]

    def added(self, name: str) -> list[str]:
        """Note a durable checkpoint and remove what is no longer needed; returns their names."""
        if name in self._older:
            self._older.remove(name)
        self._made.append(name)
        removed = []
        for candidate in self._older + self._made[:-2]:
            if len(self._older) + len(self._made) <= self._keep:
                break
            if candidate in self._protected and len(self._made) < 2:
                continue
            _discard(self._root, candidate)
            (self._older if candidate in self._older else self._made).remove(candidate)
            removed.append(candidate)
        return removed


def _discard(root: Path, name: str) -> None:
    """Remove a checkpoint so that a kill in between leaves no half one under its name."""
    if not (root / name).exists():
        return
    hidden = root / f".old-{name}"
    shutil.rmtree(hidden, ignore_errors=True)
    # The coordinator removes as well, for run.disk_budget: what is gone is gone.
    with suppress(FileNotFoundError):
        os.rename(root / name, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
