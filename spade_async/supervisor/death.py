"""The one line that says who died, why, and what to do."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

from spade_async.supervisor.parts import Part
from spade_async.telemetry.status import RunStatus

_TAIL_BYTES = 16 << 10
_MAX_REASON_CHARS = 500
_FULL_BYTES = 1 << 20
_LOGGED_ERROR = re.compile(r" (?:ERROR|CRITICAL) \S+: (.*)")
_EXCEPTION_LINE = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:Error|Exception|Interrupt|Failure|Busy|Exit)\b.*)"
)


def death_line(part: Part, status: RunStatus | None, run_dir: Path) -> str:
    """Who, why and what to do, for a part that ended on its own.

    The coordinator's own record (`RunStatus.failure`, made from a part's last words) is better than
    a log line, so it is taken when there is one.
    """
    advice = f"see {part.log}; go on with --resume --run-dir {run_dir}"
    if _is_full(run_dir):
        # What the part said may not even have reached its log.
        advice = f"the disk of {run_dir} is full: free some space; {advice}"
    if status is not None and status.state == "failed" and status.failure:
        recorded = _one_line(status.failure)
        if "--resume" in recorded:
            return recorded
        return f"{recorded}; {advice}"
    reason = _last_words(part.name, status) or last_error(part.log)
    because = f": {reason}" if reason else ""
    return f"{part.name} (pid {part.pid}) {how(part.returncode)}{because}; {advice}"


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _FULL_BYTES
    except OSError:
        return False


def _last_words(name: str, status: RunStatus | None) -> str | None:
    """What a part told the coordinator before it left ("gen-0: GenerationError: ...")."""
    said = (status.failure if status is not None else None) or ""
    speaker, _, words = said.partition(": ")
    return _one_line(words) if speaker == name and words else None


def how(returncode: int | None) -> str:
    """An exit code in words: "ended with exit code 3", "was killed by SIGKILL (...)"."""
    if returncode is None:
        return "did not stop"
    if returncode == 0:
        return "left before the run was done (exit code 0)"
    if returncode > 0:
        return f"ended with exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    hint = " (out of memory? see dmesg)" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


def last_error(log: Path) -> str | None:
    """The last line of a log that looks like an error, cut at 500 characters; None without one."""
    lines = [line for line in _tail(log) if line.strip()]
    for line in reversed(lines):
        logged = _LOGGED_ERROR.search(line)
        if logged:
            return _one_line(logged.group(1))
        raised = _EXCEPTION_LINE.match(line)
        if raised:
            return _one_line(raised.group(1))
    return None


def _tail(log: Path) -> list[str]:
    try:
        with log.open("rb") as source:
            source.seek(0, os.SEEK_END)
            source.seek(max(0, source.tell() - _TAIL_BYTES))
            return source.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    printable = "".join(c if c.isprintable() else "?" for c in flat)
    return printable[:_MAX_REASON_CHARS]
