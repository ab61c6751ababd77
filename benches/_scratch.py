"""Folders of a bench: gone after the block; what one killed by -9 left goes at the next start.

A folder is named after the process that made it: its pid and when it started, which together name
one process until the machine is started again.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spade_async.supervisor.processes import facts

PREFIX = "spade-async-bench-"
_NAME = re.compile(re.escape(PREFIX) + r"(\d+)-(\d+)-.*")
_MEMORY = Path("/dev/shm")


@contextmanager
def scratch(where: Path | None = None) -> Iterator[Path]:
    """A fresh folder in `where`, else in the temporary folder of this machine."""
    sweep()
    me = facts(os.getpid())
    assert me is not None  # we are alive
    prefix = f"{PREFIX}{me.pid}-{me.start_ticks}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=where) as folder:
        yield Path(folder)


def sweep(*roots: Path) -> list[Path]:
    """Remove this user's folders whose maker is dead; gives what was removed.

    Args:
        roots: where to look; shared memory and the temporary folder without any.
    """
    removed = []
    for root in roots or (_MEMORY, Path(tempfile.gettempdir())):
        for folder in root.glob(f"{PREFIX}*"):
            named = _NAME.fullmatch(folder.name)
            try:
                is_ours = not folder.is_symlink() and folder.stat().st_uid == os.getuid()
            except OSError:
                continue
            if named is None or not is_ours:
                continue
            maker = facts(int(named[1]))
            if maker is not None and maker.start_ticks == int(named[2]) and maker.state not in "ZX":
                continue
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed
