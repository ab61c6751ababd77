"""What stands in a run folder, how much room it takes, and what of it may go first.

Order of removal, from what costs least to do without: weight sets nobody reads any more; damaged
checkpoints; batches set aside but the newest; checkpoints but the two newest; logs but their last
MiB; event files of earlier starts (their numbers are in the ledger); the newest batch set aside;
the second newest checkpoint. Never: the newest good checkpoint and what is newer, weight sets that
are or may be read, the ledger, the configuration, the open event file, alerts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from spade_async.config.run_folder import RunFolder

LOG_KEPT_BYTES = 1 << 20
_CHECKPOINT = re.compile(r"branch-(\d+)-step-(\d+)")
_WEIGHTS = re.compile(r"weights-(\d+)\.(\d+)\.safetensors")
_BATCH = re.compile(r"batch-(\d+)-(\d+)")

Version = tuple[int, int]
"""(branch, step)."""


class Rank(IntEnum):
    """What goes first; the lowest of all."""

    OLD_WEIGHTS = 0
    DAMAGED = 1
    OLD_BATCH = 2
    OLD_CHECKPOINT = 3
    LOG = 4
    OLD_EVENTS = 5
    NEWEST_BATCH = 6
    SECOND_CHECKPOINT = 7


@dataclass(frozen=True, slots=True)
class InUse:
    """What must stay."""

    checkpoint: Version | None
    """Newest checkpoint that the ledger names; it and everything newer stays. None: all stay."""
    weights_from: Version | None
    """Oldest weight set that is or may be read; None: all stay."""
    events: str
    """Name of the open event file."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that may go."""

    rank: Rank
    age: Version | float | str
    """Lower goes first within a rank."""
    paths: tuple[Path, ...]


def candidates(folder: RunFolder, in_use: InUse) -> list[Candidate]:
    """What may go, first things first."""
    found = [
        *_weights(folder.root / "weights", in_use.weights_from),
        *_checkpoints(folder.checkpoints, in_use.checkpoint),
        *_batches(folder.quarantine),
        *_logs(folder.logs),
        *_events(folder.tensorboard, in_use.events),
    ]
    return sorted(found, key=lambda c: (c.rank, c.age))


def used_bytes(root: Path) -> int:
    """Bytes of all files below a folder; a file with several names counts once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for entry in _files(root):
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        key = (found.st_dev, found.st_ino)
        if key not in seen:
            seen.add(key)
            total += found.st_size
    return total


def parts(folder: RunFolder) -> dict[str, int]:
    """Bytes of each part of a run folder, the largest first."""
    ledger = sum(p.stat().st_size for p in folder.root.glob(f"{folder.ledger.name}*"))
    found = {"ledger": ledger}
    for name in ("checkpoints", "weights", "quarantine", "tensorboard", "logs"):
        found[name] = used_bytes(folder.root / name)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def newest_bytes(folder: RunFolder) -> int:
    """Bytes of the newest checkpoint and weight set: about what the next step writes."""
    checkpoints = _named(folder.checkpoints, _CHECKPOINT)
    weights = _named(folder.root / "weights", _WEIGHTS)
    total = used_bytes(checkpoints[-1][1]) if checkpoints else 0
    return total + (weights[-1][1].stat().st_size if weights else 0)


def _weights(root: Path, oldest_in_use: Version | None) -> Iterator[Candidate]:
    for version, path in _named(root, _WEIGHTS):
        if oldest_in_use is not None and version < oldest_in_use:
            yield Candidate(Rank.OLD_WEIGHTS, version, (path,))


def _checkpoints(root: Path, newest_good: Version | None) -> Iterator[Candidate]:
    for path in sorted(root.glob("damaged-*")):
        match = _CHECKPOINT.search(path.name)
        # After what was undone, which is of no use at all.
        yield Candidate(Rank.DAMAGED, (1, int(match[2]) if match else 0), (path,))
    if newest_good is None:
        return
    older = []
    for version, path in _named(root, _CHECKPOINT):
        if version[0] < newest_good[0] and version[1] >= newest_good[1]:
            # Of steps that were undone: nothing goes back to it.
            yield Candidate(Rank.DAMAGED, (0, version[1]), (path,))
        elif version < newest_good:
            older.append((version, path))
    # Of several branches the later step is newer; at the same step the later branch.
    older.sort(key=lambda item: (item[0][1], item[0][0]))
    for version, path in older[:-1]:
        yield Candidate(Rank.OLD_CHECKPOINT, (version[1], version[0]), (path,))
    for version, path in older[-1:]:
        yield Candidate(Rank.SECOND_CHECKPOINT, version, (path,))


def _batches(root: Path) -> Iterator[Candidate]:
    files: dict[Version, list[Path]] = {}
    if root.is_dir():
        for path in root.iterdir():
            if match := _BATCH.match(path.name):
                files.setdefault((int(match[1]), int(match[2])), []).append(path)
    for number, version in enumerate(sorted(files), 1):
        rank = Rank.NEWEST_BATCH if number == len(files) else Rank.OLD_BATCH
        yield Candidate(rank, version, tuple(sorted(files[version])))


def _logs(root: Path) -> Iterator[Candidate]:
    for path in root.glob("*.log"):
        size = path.stat().st_size
        if size > LOG_KEPT_BYTES:
            yield Candidate(Rank.LOG, -float(size), (path,))


def _events(root: Path, open_file: str) -> Iterator[Candidate]:
    for path in root.glob("events.out.tfevents.*"):
        if path.name != open_file:
            # By name, as they were opened: times of files follow the wall clock.
            yield Candidate(Rank.OLD_EVENTS, path.name, (path,))


def _named(root: Path, pattern: re.Pattern[str]) -> list[tuple[Version, Path]]:
    """Entries whose whole name fits, by rising version."""
    if not root.is_dir():
        return []
    found = [
        ((int(match[1]), int(match[2])), path)
        for path in root.iterdir()
        if (match := pattern.fullmatch(path.name))
    ]
    return sorted(found)


def _files(root: Path) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(root))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        else:
            yield entry
