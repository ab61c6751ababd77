"""Keeps a run folder below `run.disk_budget`: removes what `inventory.py` allows, in its order."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from spade_async.config.run_folder import RunFolder
from spade_async.config.size import in_units
from spade_async.disk.inventory import (
    LOG_KEPT_BYTES,
    Candidate,
    InUse,
    Rank,
    candidates,
    newest_bytes,
    parts,
    used_bytes,
)
from spade_async.disk.manifest import damage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of a look at the folder."""

    used_bytes: int
    removed: tuple[str, ...]
    """Names, in the order they went."""
    over: str | None
    """One sentence when the folder stays above its budget; None when it fits."""


def keep_budget(folder: RunFolder, budget_bytes: int, in_use: InUse) -> Kept:
    """Remove until the folder and what the next step writes fit the budget.

    A checkpoint is only removed when the newest good one is whole: else it is the last good one.
    """
    # The next checkpoint and weights are written before old ones go; ledger, events and logs grow.
    reserve = int(newest_bytes(folder) * 1.25) + budget_bytes // 100
    removed: list[str] = []
    used = used_bytes(folder.root)
    if used + reserve > budget_bytes:
        for candidate in candidates(folder, in_use):
            if candidate.rank is Rank.SECOND_CHECKPOINT and not _newest_is_whole(folder, in_use):
                break
            _remove(candidate)
            removed.append(candidate.paths[0].name)
            used = used_bytes(folder.root)
            if used + reserve <= budget_bytes:
                break
    if removed:
        log.info("run.disk_budget: removed %s", ", ".join(removed))
    return Kept(used, tuple(removed), _over(folder, used, reserve, budget_bytes))


def _over(folder: RunFolder, used: int, reserve: int, budget_bytes: int) -> str | None:
    if used + reserve <= budget_bytes:
        return None
    largest = ", ".join(f"{name} {in_units(size)}" for name, size in parts(folder).items() if size)
    return (
        f"{folder.root} holds {in_units(used)} ({largest}) and the next step writes "
        f"{in_units(reserve)}: more than run.disk_budget={in_units(budget_bytes)}, and nothing "
        "more may go"
    )


def _newest_is_whole(folder: RunFolder, in_use: InUse) -> bool:
    if in_use.checkpoint is None:
        return False
    branch, step = in_use.checkpoint
    newest = folder.checkpoints / f"branch-{branch}-step-{step}"
    return newest.is_dir() and damage(newest) is None


def _remove(candidate: Candidate) -> None:
    for path in candidate.paths:
        # The learner removes as well: what is gone is gone.
        with contextlib.suppress(FileNotFoundError):
            if candidate.rank is Rank.LOG:
                _cut(path)
            elif path.is_dir():
                hidden = path.with_name(f".old-{path.name}")
                shutil.rmtree(hidden, ignore_errors=True)
                os.rename(path, hidden)
                shutil.rmtree(hidden, ignore_errors=True)
            else:
                path.unlink()


def _cut(path: Path) -> None:
    """Keep the end of a log that others append to; a line that comes just now may be lost."""
    with path.open("r+b") as file:
        file.seek(-LOG_KEPT_BYTES, os.SEEK_END)
        tail = file.read()
        tail = tail.partition(b"\n")[2] or tail
        file.truncate(0)
    with path.open("ab") as file:
        file.write(tail)
