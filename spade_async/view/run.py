"""A run folder opened for looking: its ledger read-only, its configuration as it was written.

The configuration is not checked against the present schema: an older run may have keys that are
gone, and looking at it must still work. Nothing in the folder changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade_async.config.load import as_written
from spade_async.config.run_folder import RunFolder
from spade_async.errors import LedgerError
from spade_async.ledger import LedgerReader
from spade_async.supervisor.folder import read_info


@dataclass(frozen=True, slots=True)
class ViewedRun:
    """One run; the ledger sees what was committed when each query starts."""

    folder: RunFolder
    config: dict[str, Any]
    """Nested values under the names that a user writes."""
    info: dict[str, Any]
    """run.json; {} when there is none yet."""
    ledger: LedgerReader

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.folder.root.resolve().name

    def value(self, dotted: str, default: Any = None) -> Any:
        """One value of the configuration, or `default`."""
        found: Any = self.config
        for part in dotted.split("."):
            if not isinstance(found, dict) or part not in found:
                return default
            found = found[part]
        return found

    @property
    def model_folders(self) -> list[Path]:
        """Folders that may hold the run's tokenizer, the likeliest first; they need not exist."""
        if self.value("engine.kind") == "scripted":
            return []  # its model folder stands in for one: there is no tokenizer in it
        named = self.info.get("model_folder") or self.value("model.path")
        stored = sorted(self.folder.checkpoints.glob("*/tokenizer.json"), key=_changed)
        return [
            *([Path(named)] if isinstance(named, str) else []),
            *(path.parent for path in reversed(stored)),
        ]


@contextmanager
def opened(run_dir: Path) -> Iterator[ViewedRun]:
    """Open a run, also one that goes on.

    Raises:
        ConfigError: not a run folder, or its configuration is damaged.
        LedgerError: no readable ledger in it.
    """
    folder = RunFolder(run_dir)
    config = as_written(run_dir)
    with LedgerReader.open(folder.ledger) as ledger:
        try:
            yield ViewedRun(folder, config, read_info(folder), ledger)
        except (ValueError, LookupError, TypeError) as cause:
            # What SQLite's own pages do not guard: a changed byte inside a value.
            raise LedgerError(
                f"ledger {folder.ledger} holds a value that cannot be read "
                f"({type(cause).__name__}: {cause}): it is damaged, or this is a fault of ours; "
                "--debug shows where"
            ) from cause


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value, in the order of the file."""
    pairs: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            pairs |= flat(value, f"{prefix}{key}.")
        else:
            pairs[f"{prefix}{key}"] = value
    return pairs


def _changed(path: Path) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
