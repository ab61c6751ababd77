"""Where the link meets: a private, short socket folder per run, and which addresses are allowed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path

from spade_async.config import link_address
from spade_async.config.schema import LinkConfig
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


def check_endpoint(endpoint: str, *, has_keys: bool = False) -> None:
    """Refuse addresses that others could reach; with CURVE keys any tcp address will do.

    Raises:
        TransportError: not ipc:// in a private folder, and not tcp:// on loopback or with keys.
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
    address = link_address.split_tcp(endpoint)
    if address is not None and (has_keys or link_address.is_loopback(address[0])):
        return
    raise TransportError(
        f"{endpoint}: without CURVE keys only ipc:// and tcp:// on loopback are allowed: use "
        "tcp://127.0.0.1:PORT, or make keys with `spade-async keys DIR` and set link.keys=DIR"
    )


def check_free(config: LinkConfig) -> None:
    """Refuse an address that cannot be listened on now; nothing to do for "ipc".

    Raises:
        TransportError: the port is taken, or the address is not one of this machine.
    """
    address = link_address.split_tcp(config.endpoint)
    if address is None:
        return
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As ZeroMQ does: connections of an earlier run that are still closing do not matter.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("" if host == "*" else host, int(port)))
            probe.listen(1)
    except OSError as cause:
        if cause.errno == errno.EADDRINUSE:
            raise TransportError(
                f"link.endpoint={config.endpoint}: port {port} is taken: stop what listens there "
                f"(ss -ltnp 'sport = :{port}'), or choose another port"
            ) from cause
        raise TransportError(
            f"link.endpoint={config.endpoint}: cannot listen there: {cause.strerror}; use an "
            f"address of this machine, or tcp://*:{port}"
        ) from cause


def address_to_connect(config: LinkConfig) -> str:
    """Where parts on this machine find a coordinator that listens on `link.endpoint` (tcp)."""
    address = link_address.split_tcp(config.endpoint)
    if address is not None and link_address.is_any(address[0]):
        return f"tcp://{'[::1]' if ':' in address[0] else '127.0.0.1'}:{address[1]}"
    return config.endpoint


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
