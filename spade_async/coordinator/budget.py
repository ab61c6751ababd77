"""The coordinator's side of `run.disk_budget`: it knows what is in use, looks after each step."""

from __future__ import annotations

import re

from spade_async.coordinator.core import Core
from spade_async.coordinator.publish import Publisher
from spade_async.disk.budget import keep_budget
from spade_async.disk.inventory import InUse, Version
from spade_async.telemetry.tensorboard import EventWriter
from spade_async.types import PolicyVersion

_CHECKPOINT = re.compile(r"branch-(\d+)-step-(\d+)")


class BudgetKeeper:
    """Keeps the run folder below its budget."""

    def __init__(
        self, core: Core, publisher: Publisher, events: EventWriter, checkpoint: str | None
    ) -> None:
        """Begin.

        Args:
            core: for configuration, folder and alerts.
            publisher: knows which weights are read.
            events: its file is open.
            checkpoint: the one the run was resumed from, None for a new run.
        """
        self._core = core
        self._publisher = publisher
        self._events = events
        self._good = _version(checkpoint)
        self._budget = core.config.run.disk_budget

    def after_step(self, checkpoint: str | None) -> None:
        """Look, after the commit of a step that may name a new checkpoint."""
        self._good = _version(checkpoint) or self._good
        if self._budget is None:
            return
        oldest = self._publisher.oldest_in_use
        in_use = InUse(
            checkpoint=self._good,
            weights_from=None if oldest is None else _pair(PolicyVersion.unpack(oldest)),
            events=self._events.file_name,
        )
        kept = keep_budget(self._core.folder, self._budget, in_use)
        self._core.counters["disk_removed"] += len(kept.removed)
        if kept.over is not None:
            self._core.alert(kept.over, kind="disk_budget")


def _version(name: str | None) -> Version | None:
    found = _CHECKPOINT.fullmatch(name or "")
    return (int(found[1]), int(found[2])) if found else None


def _pair(version: PolicyVersion) -> Version:
    return version.branch, version.step
