"""The record of a profile: what the environments of one template find, and the checks of it."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from spade_async.errors import SandboxError
from spade_async.sandbox_interpreter import search_paths

TIERS = ("files", "asyncio", "threads")
"""Groups of system calls beyond those of pure computing; see sandbox_rs/policies."""

JOINED = ("packages", "tiers")
"""Keys whose lists are joined when one profile extends another."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_PACKAGE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_SIZES = {
    # name: (least, most) of a value that is set
    "files_bytes": (64 << 10, 1 << 36),
    "files_inodes": (2, 1 << 20),
    "memory_bytes": (1 << 20, 1 << 40),
    "pids": (1, 1024),
    "spares": (1, 1 << 16),
    "rotate_after": (1, 1 << 40),
}


class PoolLimits(Protocol):
    """What of a pool's policy stands in where a profile says 0 or ""."""

    @property
    def python(self) -> str | None:
        """Interpreter; None is the running one."""

    @property
    def memory_bytes(self) -> int:
        """Memory of a worker above that of its template."""

    @property
    def spares(self) -> int:
        """Workers kept ready."""

    @property
    def rotate_after(self) -> int:
        """Workers after which a template is replaced; 0 is never."""

    @property
    def rotate_after_s(self) -> float:
        """Seconds after which a template is replaced; 0 is never."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What the environments of one template find. Checked when it is made.

    Example:
        >>> Profile("chess", packages=("numpy",), memory_bytes=128 << 20).packages
        ('numpy',)
    """

    name: str
    """Lower-case letters, digits, "-" and "_"; at most 32."""
    packages: tuple[str, ...] = ()
    """Modules that the template imports before it locks itself; nothing is found later."""
    python: str = ""
    """Absolute path of the template's interpreter, 3.11 or newer; "" is the pool's."""
    tiers: tuple[str, ...] = ()
    """Some of `TIERS`. "files": reading and writing below /tmp. "asyncio": event loops.
    "threads": up to `pids` - 1 further threads."""
    files_bytes: int = 0
    """Size of the episode's own file system at /tmp, in memory; 0 leaves no writable path. What is
    in it counts against `memory_bytes` where a memory cgroup holds."""
    files_inodes: int = 0
    """Files and folders it can hold, /tmp itself included."""
    memory_bytes: int = 0
    """Memory of a worker above that of the template; 0 is the pool's."""
    pids: int = 1
    """Processes and threads of a worker, the first included."""
    virtual_clock: bool = False
    """Time begins at 2025-01-01 00:00 UTC and moves by 1 ms per reading and by what is slept."""
    spares: int = 0
    """Workers kept ready ahead of demand; 0 is the pool's."""
    rotate_after: int = 0
    """Workers after which the template is replaced; 0 is the pool's."""
    rotate_after_s: float = 0.0
    """Seconds after which the template is replaced; 0 is the pool's."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(
                f"profile name {self.name!r}: use 1 to 32 of a-z, 0-9, - and _, no - or _ first"
            )
        for key in JOINED:
            object.__setattr__(self, key, self._names(key))
        for package in self.packages:
            if not _PACKAGE.fullmatch(package):
                raise self._problem("packages", package, "write module names such as numpy.linalg")
        for tier in self.tiers:
            if tier not in TIERS:
                raise self._problem("tiers", tier, nearest(tier, TIERS))
        for key, (least, most) in _SIZES.items():
            value = getattr(self, key)
            fits = isinstance(value, int) and not isinstance(value, bool)
            if not fits or not (least <= value <= most or (value == 0 and key != "pids")):
                zero = "" if key == "pids" else "0 or "
                raise self._problem(key, value, f"set {zero}an integer from {least} to {most}")
        seconds = self.rotate_after_s
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise self._problem("rotate_after_s", seconds, "set a number of seconds")
        if seconds != 0 and not 1 <= seconds <= 1e9:
            raise self._problem("rotate_after_s", seconds, "set 0 or 1 to 1e9 seconds")
        if not isinstance(self.virtual_clock, bool):
            raise self._problem("virtual_clock", self.virtual_clock, "set true or false")
        if not isinstance(self.python, str) or (self.python and not os.path.isabs(self.python)):
            raise self._problem(
                "python", self.python, 'set an absolute path, or "" for the pool\'s'
            )
        self._check_together()

    def _names(self, key: str) -> tuple[str, ...]:
        value = getattr(self, key)
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise self._problem(key, value, "set a list of names")
        names = tuple(value)
        if not all(isinstance(name, str) for name in names):
            raise self._problem(key, value, "set a list of names")
        return tuple(dict.fromkeys(names))

    def _check_together(self) -> None:
        has_files = "files" in self.tiers
        for key in ("files_bytes", "files_inodes"):
            value = getattr(self, key)
            if has_files and value == 0:
                raise self._problem(key, value, 'tier "files" needs it above 0')
            if not has_files and value != 0:
                raise self._problem(key, value, 'add "files" to tiers, or set 0')
        if "threads" in self.tiers and self.pids < 2:
            raise self._problem("pids", self.pids, 'tier "threads" needs at least 2')
        if "threads" not in self.tiers and self.pids > 1:
            raise self._problem("pids", self.pids, 'add "threads" to tiers, or set 1')

    def _problem(self, key: str, value: object, advice: str) -> ValueError:
        return ValueError(f"profile {self.name!r}: {key}={repr(value)[:80]}: {advice}")

    def to_limits(self, pool: PoolLimits) -> dict[str, Any]:
        """The profile as the native core reads it: one `[[profiles]]` table.

        Args:
            pool: the policy of the pool, for what this profile leaves to it.

        Raises:
            ValueError: the file system is larger than the memory that it counts against.
            SandboxError: another interpreter was named and does not say where its packages are.
        """
        memory_bytes = self.memory_bytes or pool.memory_bytes
        if self.files_bytes > memory_bytes:
            raise self._problem(
                "files_bytes", self.files_bytes, f"set at most memory_bytes={memory_bytes}"
            )
        python = self.python or pool.python or sys.executable
        try:
            paths = search_paths(python) if self.packages else []
        except SandboxError as cause:
            raise SandboxError(f"profile {self.name!r}: {cause}") from cause
        return {
            "name": self.name,
            "python": python,
            "imports": list(self.packages),
            "import_paths": paths,
            "tiers": list(self.tiers),
            "files_bytes": self.files_bytes,
            "files_inodes": self.files_inodes,
            "memory_bytes": memory_bytes,
            "pids": self.pids,
            "virtual_clock": self.virtual_clock,
            "spares": self.spares or pool.spares,
            "rotate_after": self.rotate_after or pool.rotate_after,
            "rotate_after_s": float(self.rotate_after_s or pool.rotate_after_s),
        }


def nearest(name: str, known: Iterable[str]) -> str:
    """What was probably meant, or what there is."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
