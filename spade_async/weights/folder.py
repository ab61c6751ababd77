"""The private folder that holds a run's weight files, and its removal. No torch.

In shared memory the folder is ``/dev/shm/spade-async-UID-HASH`` with HASH of the run folder's path,
so that every process of a run finds the same one; `owner.json` inside says whose it is, so that
what a killed run left behind can be swept.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import time
from pathlib import Path

from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.errors import WeightsError
from spade_async.weights.living import start_of

logger = logging.getLogger(__name__)

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "spade-async-"
_OWNER = "owner.json"
_TRIES = 50
_MAKING_S = 3600.0
"""A folder without an owner that is older than this is not in the making: its removal was cut."""
_REMEDY = 'set weights.location="run_folder"'


def weights_folder(config: Config, run_dir: Path) -> Path:
    """The folder for the weight files of a run; a pure function, nothing is made."""
    run_dir = run_dir.resolve()
    if config.weights.location == "run_folder":
        return run_dir / "weights"
    name = hashlib.blake2b(str(run_dir).encode(), digest_size=8).hexdigest()
    return SHARED_MEMORY / f"{PREFIX}{os.getuid()}-{name}"


def make_weights_folder(config: Config, run_dir: Path) -> Path:
    """Make the folder (0700) and write who owns it: this process, for this run folder.

    Called by the supervisor before it starts anything; harmless when repeated.

    Raises:
        WeightsError: it cannot be made, or somebody else's folder has its name.
    """
    folder = weights_folder(config, run_dir)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if status.st_uid != os.getuid() or folder.is_symlink():
            raise WeightsError(f"{folder} belongs to another user: remove it, or {_REMEDY}")
        folder.chmod(0o700)
        pid = os.getpid()
        owner = {"run_dir": str(run_dir.resolve()), "pid": pid, "start": start_of(pid)}
        temporary = folder / f".{_OWNER}.{pid}"
        temporary.write_text(json.dumps(owner))
        temporary.replace(folder / _OWNER)
    except OSError as cause:
        raise WeightsError(
            f"weights folder {folder} cannot be made ({cause.strerror}): {_REMEDY}"
        ) from cause
    return folder


def check_shared_memory(needed_bytes: int = 32 << 20, root: Path = SHARED_MEMORY) -> None:
    """Check that shared memory can hold the weight files.

    Args:
        needed_bytes: (weights.keep + 1) x the size of the model, or a guess.
        root: where shared memory is mounted.

    Raises:
        WeightsError: missing, not writable, or too small; one line with the remedy.
    """
    if not root.is_dir():
        raise WeightsError(f"shared memory {root} is missing: {_REMEDY}")
    if not os.access(root, os.W_OK | os.X_OK):
        raise WeightsError(f"shared memory {root} cannot be written by this user: {_REMEDY}")
    usage = os.statvfs(root)
    free = usage.f_bavail * usage.f_frsize
    if free < needed_bytes:
        raise WeightsError(
            f"shared memory {root} has {free >> 20} MiB free, {max(1, needed_bytes >> 20)} MiB are "
            f"needed: enlarge it (docker run --shm-size), or {_REMEDY}"
        )


def remove_weights_folder(folder: Path) -> None:
    """Remove a run's weight folder. Only folders this module names; a missing one is fine.

    Somebody who is dying may still write into it: then it is not empty at the end, and removed
    again.
    """
    ours = folder.name == "weights" or (
        folder.parent == SHARED_MEMORY and folder.name.startswith(PREFIX)
    )
    if not ours:
        raise WeightsError(f"{folder} is not a weights folder: not removed")
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def is_left_by(folder: Path, supervisor: int) -> bool:
    """Whether a folder is nobody's once that supervisor is gone: its own, or a dead process's.

    Args:
        folder: the weights folder of a run.
        supervisor: pid of what seems to have been our supervisor: a part that was just starting
            when it died knows only who took its place as parent.
    """
    owner = _owner(folder)
    if owner is None:
        # What a removal left that another part wrote into: a next start waits until all are gone.
        return True
    pid, start, _ = owner
    return pid == supervisor or start_of(pid) != start


def sweep_stale_folders(root: Path = SHARED_MEMORY) -> list[Path]:
    """Remove this user's folders in shared memory whose run is dead; gives what was removed.

    A run is dead when the process that made the folder is gone and nobody holds the lock of its run
    folder. A young folder without a readable owner is left alone: it may be in the making.
    """
    removed = []
    for folder in root.glob(f"{PREFIX}{os.getuid()}-*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            age_s = time.time() - folder.stat().st_mtime
            owner = _owner(folder)
        except OSError:
            continue
        if owner is None and age_s < _MAKING_S:
            continue
        if owner is not None:
            pid, start, run_dir = owner
            if start_of(pid) == start or _locked(RunFolder(run_dir).lock):
                continue
        shutil.rmtree(folder, ignore_errors=True)
        logger.info("removed %s, left behind by a dead run", folder)
        removed.append(folder)
    return removed


def _owner(folder: Path) -> tuple[int, str | None, Path] | None:
    """Pid and start time of who made a folder, and its run folder; None when nobody says so."""
    try:
        owner = json.loads((folder / _OWNER).read_text())
        return int(owner["pid"]), owner["start"], Path(owner["run_dir"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _locked(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
