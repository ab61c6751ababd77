"""Where the link meets: a private, short socket folder per run, and which addresses are allowed."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shutil
import stat
import tempfile
from pathlib import Path

from spade_async.errors import TransportError

_PREFIX = "spade-"
_OWNER = "owner.pid"
_SOCKET = "link.sock"
_MAX_PATH_BYTES = 100
"""A socket path holds 107 bytes; some room is left for readers that append to it."""


def make_endpoint(parent: Path | None = None) -> tuple[Path, str]:
    """Make a private (0700) folder for the socket; (folder, "ipc://..."). Sweeps dead ones first.

    Args:
        parent: where; default XDG_RUNTIME_DIR if it is ours and short, else /tmp.

    Raises:
        TransportError: the folder cannot be made, or its path is too long for a socket.
    """
    base = _base() if parent is None else parent
    sweep(base)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        (folder / _OWNER).write_text(f"{os.getpid()} {_start_time(os.getpid())}\n")
    except OSError as cause:
        raise TransportError(f"socket folder in {base} cannot be made: {cause}") from cause
    path = folder / _SOCKET
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        remove_endpoint(folder)
        raise TransportError(
            f"socket path {path} is longer than {_MAX_PATH_BYTES} bytes; shorten it"
        )
    return folder, f"ipc://{path}"


def remove_endpoint(folder: Path) -> None:
    """Remove a folder made by `make_endpoint`; nothing happens when it is gone."""
    shutil.rmtree(folder, ignore_errors=True)


def sweep(base: Path) -> int:
    """Remove our own socket folders whose owner is dead; how many.

    Only folders that belong to this user, carry our prefix and name an owner are touched.
    """
    removed = 0
    for folder in base.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError, ValueError):
            info = folder.lstat()
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
                continue
            pid, start = (folder / _OWNER).read_text().split()
            if _start_time(int(pid)) != start:
                remove_endpoint(folder)
                removed += 1
    return removed


def check_endpoint(endpoint: str) -> None:
    """Refuse addresses that others could reach.

    Raises:
        TransportError: not ipc:// in a private folder and not tcp:// on loopback.
    """
    scheme, _, rest = endpoint.partition("://")
    if scheme == "ipc" and rest:
        if len(os.fsencode(rest)) > 107:
            raise TransportError(f"{endpoint}: a socket path holds 107 bytes; shorten the folder")
        folder = Path(rest).parent
        try:
            info = folder.stat()
        except OSError as cause:
            raise TransportError(f"{endpoint}: {cause}; make the socket folder first") from cause
        if info.st_uid != os.geteuid() or info.st_mode & 0o077:
            mode = stat.S_IMODE(info.st_mode)
            raise TransportError(
                f"{endpoint}: folder {folder} is open to others (mode {mode:o}): chmod 700 it"
            )
        return
    if scheme == "tcp" and _is_loopback(rest.rpartition(":")[0].strip("[]")):
        return
    raise TransportError(
        f"{endpoint}: only ipc:// and tcp:// on loopback are allowed; other hosts need CURVE keys, "
        "which this version does not have: use ipc:// or tcp://127.0.0.1:PORT"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _base() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and len(os.fsencode(runtime)) < 60:
        with contextlib.suppress(OSError):
            info = os.stat(runtime)
            if info.st_uid == os.geteuid() and not info.st_mode & 0o077:
                return Path(runtime)
    return Path("/tmp")


def _start_time(pid: int) -> str:
    """Start time of a process in clock ticks since boot; "gone" when there is none.

    With the pid it names one process for ever: a pid alone may be used again.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "gone"
    # The name of the program (in parentheses) may hold anything, so count from its end.
    return text.rpartition(")")[2].split()[19]
