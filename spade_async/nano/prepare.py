"""Makes a model of a domain from a process without torch: a subprocess, its progress passed on."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from spade_async.disk import model_cache
from spade_async.errors import ConfigError
from spade_async.nano.cache import WarmStartSize, find

log = logging.getLogger(__name__)

_MAX_MESSAGE_CHARACTERS = 400
CLEAN_UP_S = 3.0
"""Time for the maker to remove what it has begun."""


def prepare(
    seed: int,
    progress: Callable[[float, str], None],
    size: WarmStartSize | None = None,
) -> Path:
    """The folder of the nano model of that seed: cached, or made by ``python -m spade_async.nano``.

    Args:
        seed: of the warm start.
        progress: called with (fraction in [0, 1], what is being done).
        size: length of the warm start; the shipped one when None.

    Raises:
        ConfigError: the warm start failed; carries its last line of output.
    """
    chosen = size or WarmStartSize()
    arguments = ["--seed", str(seed), *chosen.arguments()]
    return prepare_by("nano", "spade_async.nano", arguments, progress, lambda: find(seed, chosen))


def prepare_by(
    name: str,
    module: str,
    arguments: Sequence[str],
    progress: Callable[[float, str], None],
    find_ready: Callable[[], Path | None],
) -> Path:
    """The folder that `find_ready` finds: now, or once ``python -m module`` has made it.

    Whatever ends the call (also `SystemExit` of a signal's handler) ends the maker, which leaves
    nothing behind.

    Raises:
        ConfigError: the maker failed; carries its last line of output.
    """
    model_cache.sweep()
    ready = find_ready()
    if ready is not None:
        progress(1.0, f"{name} model found in the cache")
        return ready
    command = [
        sys.executable, "-m", module, "--progress-json", "--end-with-parent", *arguments
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    last = ""
    try:
        assert process.stdout is not None  # PIPE above
        with process.stdout:
            for line in process.stdout:
                last = _forward(line.strip(), progress) or last
        code = process.wait()
    finally:
        if process.poll() is None:  # Ctrl-C or an error in the caller's progress function
            process.terminate()  # it removes what it has begun
            try:
                process.wait(CLEAN_UP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    if code != 0:
        raise ConfigError(
            f'model.path="{name}": its warm start ended with exit code {code}: '
            f"{last[:_MAX_MESSAGE_CHARACTERS]}"
        )
    ready = find_ready()
    if ready is None:
        raise ConfigError(f'model.path="{name}": the warm start left no usable folder ({last!r})')
    return ready


def _forward(line: str, progress: Callable[[float, str], None]) -> str:
    """Pass one JSON line on; gives back a line that is not progress."""
    try:
        record = json.loads(line)
        progress(float(record["fraction"]), str(record["text"]))
    except (ValueError, KeyError, TypeError):
        if line:
            log.info("warm start: %s", line[:_MAX_MESSAGE_CHARACTERS])
        return line
    return ""
