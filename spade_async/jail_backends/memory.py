"""Memory and page faults of a process, from /proc. What cannot be read is None, never 0."""

from __future__ import annotations

from pathlib import Path


def memory_of(pid: int) -> dict[str, int | None]:
    """Figures by the names of `spade_async.sandbox_records.Resources`."""
    minor, major = _faults(pid)
    return {
        "peak_rss_bytes": _kibibytes(pid, "status", ("VmHWM",)),
        "private_bytes": _kibibytes(pid, "smaps_rollup", ("Private_Clean", "Private_Dirty")),
        "minor_faults": minor,
        "major_faults": major,
    }


def _kibibytes(pid: int, file: str, names: tuple[str, ...]) -> int | None:
    """Sum of some lines of a file of the process, in bytes."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.partition(":")[0] in names]
    return sum(found) << 10 if len(found) == len(names) else None


def _faults(pid: int) -> tuple[int | None, int | None]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None, None
    return int(fields[7]), int(fields[9])
