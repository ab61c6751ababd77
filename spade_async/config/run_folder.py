"""Paths inside a run folder. One place that knows the layout; nothing is created on import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Layout of one run on disk."""

    root: Path

    @property
    def config(self) -> Path:
        """Resolved configuration (JSON), written once."""
        return self.root / "config.json"

    @property
    def info(self) -> Path:
        """Versions, commit, sandbox level, socket folder (JSON), rewritten at each start."""
        return self.root / "run.json"

    def jail(self, name: str) -> Path:
        """What confined the code of generator `name` (JSON): level, layers, limits, profiles."""
        return self.root / f"jail-{name}.json"

    @property
    def lock(self) -> Path:
        """Locked (flock) by the supervisor while the run lives."""
        return self.root / "lock"

    @property
    def ledger(self) -> Path:
        """SQLite ledger; the coordinator is its one writer."""
        return self.root / "ledger.sqlite"

    @property
    def status(self) -> Path:
        """Last known state (JSON), replaced atomically about once a second."""
        return self.root / "status.json"

    @property
    def alerts(self) -> Path:
        """What a user should know (JSON lines), in the order it was told."""
        return self.root / "alerts.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Committed checkpoints, one folder each."""
        return self.root / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        """Event files."""
        return self.root / "tensorboard"

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.root / "logs"

    @property
    def quarantine(self) -> Path:
        """Batches whose update was not finite."""
        return self.root / "quarantine"
