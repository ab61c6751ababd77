"""A file of 1 MiB that is given up on a full disk, so that status and alerts can be written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

BYTES = 1 << 20
NAME = ".ballast"


class Ballast:
    """Room kept for saying that there is none."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def load(self) -> None:
        """Take the room; harmless when it is taken or there is none."""
        if self._path.exists():
            return
        try:
            with self._path.open("wb") as file:
                # Written, not only sized: a sparse file takes no room.
                os.posix_fallocate(file.fileno(), 0, BYTES)
        except OSError:
            self.drop()

    def drop(self) -> None:
        """Give the room back."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
