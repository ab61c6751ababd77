"""The run folder as the supervisor takes it: made, locked for the life of the run, checked."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spade_async.config.load import differences, dump_resolved, load_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.disk.manifest import damage
from spade_async.errors import LedgerUnusable, RunFolderError
from spade_async.ledger import LedgerReader
from spade_async.supervisor.resources import resources_path

MIN_FREE_BYTES = 200 << 20
"""Least free space a run starts with: ledger, event files and logs."""
_MAX_NAMED_KEYS = 6
_CHECKPOINT = re.compile(r"branch-(\d+)-step-(\d+)")


@dataclass(slots=True)
class LockedFolder:
    """A run folder this process holds. The lock goes with the process, however it dies."""

    folder: RunFolder
    is_resumed: bool
    lock_fd: int
    made: list[Path] = field(default_factory=list)
    """Folders that were made for it, the innermost first."""

    def forget(self) -> None:
        """Leave no trace of a start that was refused before it had a process."""
        if self.is_resumed or read_info(self.folder).get("processes"):
            return
        _remove_start(self.folder, self.made)

    def close(self) -> None:
        """Give the folder back."""
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1


def take(root: Path, config: Config, *, resume: bool) -> LockedFolder:
    """Make or reopen a run folder, lock it and write the resolved configuration.

    Raises:
        RunFolderError: in use by a live run, not empty without `resume`, nothing to resume, of
            another configuration, with a ledger that cannot be used, no permission, or no space.
            Nothing in it is changed then, and none is made.
    """
    folder = RunFolder(root)
    try:
        made = [path for path in (root, *root.parents) if not path.exists()]
        root.mkdir(parents=True, exist_ok=True)
        # Not inheritable: a child that outlives us for a moment must not hold the lock.
        lock_fd = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as cause:
        raise unusable(root, cause) from cause
    is_ours = False
    try:
        _lock(lock_fd, root)
        is_ours = bool(made)
        _check_contents(folder, config, resume=resume)
        _check_space(root)
        if not resume:
            _forget_start(folder)
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0)
        folder.logs.mkdir(exist_ok=True)
        dump_resolved(config, root)
    except BaseException as cause:
        if is_ours:
            _remove_start(folder, made)
        os.close(lock_fd)
        if isinstance(cause, OSError):
            raise unusable(root, cause) from cause
        raise
    return LockedFolder(folder, resume, lock_fd, made)


def holder(folder: RunFolder) -> int | None:
    """Pid of the live supervisor of a run folder, or None when nobody holds it."""
    try:
        fd = os.open(folder.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(fd) or -1
    finally:
        os.close(fd)
    return None


def read_info(folder: RunFolder) -> dict[str, Any]:
    """run.json, or {} when there is none yet or it is damaged."""
    try:
        info = json.loads(folder.info.read_text())
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def write_info(folder: RunFolder, info: dict[str, Any]) -> None:
    """Replace run.json atomically."""
    temporary = folder.info.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(info, indent=2) + "\n")
    os.replace(temporary, folder.info)


def unusable(root: Path, cause: OSError) -> RunFolderError:
    """The one line for what the operating system refuses in a run folder."""
    if cause.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        next_move = "choose a --run-dir you may write to"
    elif cause.errno in (errno.ENOSPC, errno.EDQUOT):
        next_move = "free some space or choose a --run-dir on another disk"
    else:
        next_move = "choose another --run-dir"
    return RunFolderError(
        f"run folder {root} cannot be used: {cause.strerror or cause}; {next_move}"
    )


def _lock(fd: int, root: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = _pid_in(fd)
        raise RunFolderError(
            f"run folder {root} is in use by a live run (pid {pid or 'unknown'}): stop that run "
            "or choose another --run-dir"
        ) from None


def _pid_in(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None


def _check_contents(folder: RunFolder, config: Config, *, resume: bool) -> None:
    # A folder with nothing but our lock and logs never got as far as a configuration.
    contents = {entry.name for entry in folder.root.iterdir()} - {folder.lock.name}
    if not resume:
        if contents and not _never_began(folder, contents):
            raise RunFolderError(
                f"run folder {folder.root} exists and is not empty: add --resume to go on with it "
                "or choose another --run-dir"
            )
        return
    if not folder.config.exists():
        raise RunFolderError(
            f"nothing to resume in {folder.root}: it has no {folder.config.name}; "
            "start it without --resume"
        )
    if not folder.ledger.exists() and folder.checkpoints.exists():
        raise RunFolderError(
            f"run folder {folder.root} has checkpoints and no {folder.ledger.name}: restore that "
            "file, or start anew in another --run-dir"
        )
    if folder.ledger.exists():
        try:
            with LedgerReader.open(folder.ledger, alone=True):
                pass
        except LedgerUnusable as fault:
            raise RunFolderError(f"{fault}{newest_weights(folder)}") from fault
    changed = differences(load_resolved(folder.root), config)
    if changed:
        shown = "; ".join(changed[:_MAX_NAMED_KEYS])
        more = f"; and {len(changed) - _MAX_NAMED_KEYS} more" * (len(changed) > _MAX_NAMED_KEYS)
        raise RunFolderError(
            f"run folder {folder.root} belongs to another configuration ({shown}{more}): give "
            f"these keys their old values (all are in {folder.config}) or choose another --run-dir"
        )


def _never_began(folder: RunFolder, contents: set[str]) -> bool:
    """Whether a start was refused before it had a ledger: there is nothing in it to go on with."""
    written = {folder.config.name, folder.logs.name, *(path.name for path in _of_start(folder))}
    return folder.config.exists() and contents <= written


def _forget_start(folder: RunFolder) -> None:
    for path in _of_start(folder):
        path.unlink(missing_ok=True)


def _remove_start(folder: RunFolder, made: list[Path]) -> None:
    """Remove what a start writes, or the whole folder when it was `made` for it."""
    if made:
        shutil.rmtree(folder.root, ignore_errors=True)
        with contextlib.suppress(OSError):
            for path in made[1:]:
                path.rmdir()
        return
    shutil.rmtree(folder.logs, ignore_errors=True)
    _forget_start(folder)
    for path in (folder.config, folder.lock):
        path.unlink(missing_ok=True)


def _of_start(folder: RunFolder) -> list[Path]:
    return [folder.info, folder.status, resources_path(folder)]


def newest_weights(folder: RunFolder) -> str:
    """What can be kept of a run whose ledger is lost: "; its newest weights ..." or ""."""
    # A checkpoint of a scripted run has no model.
    paths = [path.parent for path in folder.checkpoints.glob("*/config.json")]
    named = [(match, path) for path in paths if (match := _CHECKPOINT.fullmatch(path.name))]
    found = sorted((int(match[1]), int(match[2]), path) for match, path in named)
    for *_, path in reversed(found):
        if damage(path) is None:
            return (
                "; its newest weights are whole, and a new run may begin with them: "
                f"--set model.path={path}"
            )
    return ""


def _check_space(root: Path) -> None:
    free = shutil.disk_usage(root).free
    if free < MIN_FREE_BYTES:
        raise RunFolderError(
            f"run folder {root}: only {free >> 20} MiB free, a run needs at least "
            f"{MIN_FREE_BYTES >> 20} MiB; free some space or choose a --run-dir on another disk"
        )
