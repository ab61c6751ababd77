"""One run of the command line in a folder of its own, at the highest priority this user has."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benches._scratch import scratch
from benches.scripted.setting import sets

ROOT = Path(__file__).parents[2]
_NICE = -5


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished run."""

    folder: Path
    wall_s: float
    load: float
    """Load average of the machine at its end."""
    is_preferred: bool
    """Whether it had a priority above others'."""


@contextmanager
def finished_run(
    config: str,
    values: dict[str, object],
    *,
    limit_s: float = 1800.0,
    may_be_preferred: bool = True,
) -> Iterator[Ran]:
    """A run of a file in configs/ with these settings; its folder is gone after the block.

    Nothing of it depends on speed when it need not be preferred.

    Raises:
        RuntimeError: it did not end well; with what it said.
    """
    with scratch() as parent:
        folder = parent / "run"
        command = [
            sys.executable, "-m", "spade_async", "train", str(ROOT / "configs" / config),
            "--run-dir", str(folder), *sets(values),
        ]  # fmt: skip
        preferred = may_be_preferred and _may_be_preferred()
        began_s = time.monotonic()
        done = subprocess.run(
            ["nice", "-n", str(_NICE), *command] if preferred else command,
            cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"the run failed: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        yield Ran(folder, time.monotonic() - began_s, os.getloadavg()[0], preferred)


def _may_be_preferred() -> bool:
    try:
        tried = subprocess.run(["nice", "-n", str(_NICE), "true"], capture_output=True, check=False)
    except OSError:
        return False
    # Without the right, `nice` runs the command all the same and complains.
    return tried.returncode == 0 and not tried.stderr
