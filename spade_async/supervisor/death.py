"""The one line that says who died, why, and what to do."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

from spade_async.config.run_folder import RunFolder
from spade_async.errors import EXIT_REFUSED, LedgerUnusable
from spade_async.supervisor.folder import newest_weights
from spade_async.supervisor.parts import Part
from spade_async.telemetry.status import RunStatus

_TAIL_BYTES = 16 << 10
_MAX_REASON_CHARS = 500
_FULL_BYTES = 1 << 20
_LOGGED_ERROR = re.compile(r"^[\d-]+ [\d:,]+ \S+ (?:ERROR|CRITICAL) \S+: (.*)")
"""From the start of a line: what a message quotes begins no line (`telemetry.logs`)."""
_EXCEPTION_NAME = re.compile(r"\b[A-Za-z_]\w*(?:Error|Exception|Failure)\b")
_EXCEPTION_LINE = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:Error|Exception|Interrupt|Failure|Busy|Exit)\b.*)"
)


def death_line(part: Part, status: RunStatus | None, run_dir: Path) -> str:
    """Who, why and what to do, for a part that ended on its own.

    The coordinator's own record (`RunStatus.failure`, made from a part's last words) is better than
    a log line, so it is taken when there is one.
    """
    resume = f"spade-async train {run_dir} --resume"
    advice = f"see {part.log}; go on with {resume}"
    if (_reason(part, status) or "").startswith(LedgerUnusable.__name__):
        # No start mends it, with whatever settings; the line itself says what can be done.
        advice = f"see {part.log}{newest_weights(RunFolder(run_dir))}"
    elif part.returncode == EXIT_REFUSED:
        # As it is, a resume would end the same way; and not every key may change on one.
        advice = f"see {part.log}; mend that first, then {resume}, or a new run with other settings"
    if is_full(run_dir):
        # What the part said may not even have reached its log.
        advice = f"the disk of {run_dir} is full: free some space; {advice}"
    if status is not None and status.state == "failed" and status.failure:
        recorded = _one_line(status.failure)
        if "--resume" in recorded:
            return recorded
        return f"{recorded}; {advice}"
    return f"{short_line(part, status)}; {advice}"


def short_line(part: Part, status: RunStatus | None) -> str:
    """Who and why, for a part that is started again."""
    reason = _reason(part, status)
    return f"{part.name} (pid {part.pid}) {how(part.returncode)}" + (
        f": {reason}" if reason else ""
    )


def cause(part: Part, status: RunStatus | None) -> str:
    """What tells one kind of death from another: kind of part, and exit, signal or exception.

    Example: "generator exit 1 GenerationError".
    """
    kind = part.name.partition("-")[0].replace("gen", "generator")
    code = part.returncode or 0
    if code < 0:
        return f"{kind} signal {-code}"
    raised = _EXCEPTION_NAME.search(_reason(part, status) or "") if code else None
    return f"{kind} exit {code}" + (f" {raised[0]}" if raised else "")


def _reason(part: Part, status: RunStatus | None) -> str | None:
    """Its last words, or the last error in what it logged; None of one that was killed."""
    if (part.returncode or 0) < 0:
        return None
    return _last_words(part.name, status) or last_error(part.log, part.log_start)


def is_full(folder: Path) -> bool:
    """Whether next to nothing can be written there."""
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


def last_error(log: Path, start: int = 0) -> str | None:
    """The last line of a log that looks like an error, cut at 500 characters; None without one.

    Only what stands after the first `start` bytes is looked at.
    """
    lines = [line for line in _tail(log, start) if line.strip()]
    for line in reversed(lines):
        logged = _LOGGED_ERROR.search(line)
        if logged:
            return _one_line(logged.group(1))
        raised = _EXCEPTION_LINE.match(line)
        if raised:
            return _one_line(raised.group(1))
    return None


def _tail(log: Path, start: int) -> list[str]:
    try:
        with log.open("rb") as source:
            source.seek(0, os.SEEK_END)
            source.seek(max(start, source.tell() - _TAIL_BYTES))
            return source.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    printable = "".join(c if c.isprintable() else "?" for c in flat)
    return printable[:_MAX_REASON_CHARS]
