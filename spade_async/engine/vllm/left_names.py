"""Names in shared memory that vLLM's processes make, and their removal once the makers are dead.

vLLM's processes make semaphores and segments by way of multiprocessing (a progress bar makes one).
Their names say nothing of their owner. Python's resource tracker removes them, unless it is killed
with the rest, as when a whole process group gets SIGKILL. So each process of an engine of ours
writes down what it makes, in a file that is named by the process that holds the engine; whoever
finds makers dead removes what they made. Nothing else is ever touched: an entry is a name with its
inode, made by a pid with its start time.
"""

from __future__ import annotations

import contextlib
import os
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from spade_async.weights.living import start_of

SHARED_MEMORY = Path("/dev/shm")
LIST = "SPADE_ASYNC_VLLM_NAMES"
"""Environment variable: the file that the processes of an engine write to."""
_PREFIX = "spade-async-names-"
_FILE_OF = {"semaphore": "sem.{}", "shared_memory": "{}"}
"""How a kind that the resource tracker knows is called as a file in shared memory."""


def begin(root: Path = SHARED_MEMORY) -> None:
    """Make the list of this process and write down what it makes from now on, as its children do.

    Harmless when repeated. What dead processes have left is removed first.
    """
    sweep(root)
    path = root / f"{_PREFIX}{os.getuid()}-{os.getpid()}-{start_of(os.getpid())}"
    # Without shared memory nothing can be left in it.
    with contextlib.suppress(OSError):
        path.touch(mode=0o600)
        os.environ[LIST] = str(path)
        note()


def note() -> None:
    """From now on what this process makes by multiprocessing is in the list, if there is one."""
    tracker: Any = resource_tracker
    register = tracker.register
    listed = os.environ.get(LIST)
    if not listed or getattr(register, "notes", False):
        return

    def noted(name: str, kind: str) -> None:
        register(name, kind)
        file = _FILE_OF.get(kind)
        if file is not None:
            # A list that is gone or full keeps nobody from working.
            with contextlib.suppress(OSError):
                _write(Path(listed), file.format(name.lstrip("/")))

    noted.notes = True  # type: ignore[attr-defined]
    tracker.register = noted


def bury(root: Path = SHARED_MEMORY) -> list[str]:
    """A process of this engine has died: remove what it left, and tell the tracker; the names."""
    removed: list[str] = []
    with contextlib.suppress(KeyError, OSError, ValueError):  # no list, or a damaged one
        removed, _ = _bury(Path(os.environ[LIST]), root)
    tracker: Any = resource_tracker
    for name in removed:
        # Ours is theirs, too; it would look for them when we leave, and complain.
        kind = "semaphore" if name.startswith("sem.") else "shared_memory"
        tracker.unregister(f"/{name.removeprefix('sem.')}", kind)
    return removed


def end(root: Path = SHARED_MEMORY) -> None:
    """The engine of this process is closed: remove what is left and, with it, the list."""
    bury(root)
    listed = os.environ.pop(LIST, None)
    if listed is not None:
        Path(listed).unlink(missing_ok=True)


def sweep(root: Path = SHARED_MEMORY) -> list[str]:
    """Remove what dead processes of engines of this user have left; gives the names."""
    removed = []
    for path in root.glob(f"{_PREFIX}{os.getuid()}-*"):
        try:
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            _, pid, start = path.name.rsplit("-", 2)
            names, living = _bury(path, root)
            removed += names
            if not living and start_of(int(pid)) != start:
                path.unlink()
        except (OSError, ValueError):
            continue  # removed by another meanwhile, or none of ours
    return removed


def _bury(path: Path, root: Path) -> tuple[list[str], bool]:
    """Names of a list that were removed, and whether a maker lives."""
    removed, living = [], False
    for line in path.read_text().splitlines():
        maker, began, name, inode = line.split()
        if start_of(int(maker)) == began:
            living = True
        elif "/" not in name and _remove(root / name, int(inode)):
            removed.append(name)
    return removed, living


def _write(path: Path, name: str) -> None:
    """One short line at the end, by one call: several processes write to the same file."""
    inode = (path.parent / name).stat().st_ino
    line = f"{os.getpid()} {start_of(os.getpid())} {name} {inode}\n"
    # Not made again: a list that was removed belongs to a dead process.
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def _remove(path: Path, inode: int) -> bool:
    try:
        if path.lstat().st_ino != inode:
            return False
        path.unlink()
    except OSError:
        return False
    return True
