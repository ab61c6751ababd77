"""hang-N.txt: what each part of a run waits for, the oldest item by name, and all stacks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from spade_async.config.run_folder import RunFolder
from spade_async.telemetry import stacks
from spade_async.telemetry.status import HungPart, RunStatus


def hang_line(hung: HungPart) -> str:
    """One part in words, e.g. "gen-0 hangs: working, without progress for 301 s (limit 300 s)"."""
    what = {
        "silent": "it says nothing",
        "starting": "it does not get through its start",
        "stalled": "no part of the run makes progress",
    }.get(hung.state, f"{hung.state}, without progress")
    return f"{hung.name} hangs: {what} for {hung.seconds:.0f} s (limit {hung.limit_s:.0f} s)"


def write_hang_report(
    folder: RunFolder, hung: Sequence[HungPart], status: RunStatus | None, pids: dict[str, int]
) -> Path:
    """Ask everybody for their stacks and write the report; gives its path."""
    lines = [datetime.now(UTC).isoformat(timespec="seconds"), ""]
    lines += [hang_line(part) for part in hung]
    if status is not None:
        lines += ["", f"step {status.step} of {status.steps}, limited by {status.limited_by}"]
        lines += [f"oldest item: {status.oldest_item or 'none'}", "", "what each part waits for:"]
        lines += [
            f"  {part.name}: {part.state}, waits for {part.waits_for or '-'}"
            f" ({part.oldest_wait_s:.0f} s)"
            for part in status.processes
        ]
    for name, text in stacks.ask(pids, folder.logs).items():
        lines += ["", f"== {name}: {text.rstrip()}"]
    number = 1
    while True:
        path = folder.root / f"hang-{number}.txt"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(fd, "w") as sink:
            sink.write("\n".join(lines) + "\n")
        return path
