"""Which process a pid names, so that what a dead one left in shared memory can be told."""

from __future__ import annotations

from pathlib import Path


def start_of(pid: int) -> str | None:
    """Start time in ticks since boot, which tells a reused pid; None when dead."""
    try:
        # The command in field 2 may contain spaces and parentheses: count from the last one.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
