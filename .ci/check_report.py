"""Assert the promises of a run that hold for any length: ``check_report.py REPORT.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

MUST_BE_ZERO = (
    "samples_lost",
    "samples_trained_twice",
    "samples_over_bound",
    "tokens_discarded_for_age",
    "lost_to_rollback",
    "nonfinite_updates",
)


def main() -> int:
    """Print what is wrong; the exit code says whether anything is."""
    report = json.loads(Path(sys.argv[1]).read_text())
    problems = [f"{key} is {report[key]}, not 0" for key in MUST_BE_ZERO if report[key] != 0]
    if report["steps"] != 12:
        problems.append(f"steps is {report['steps']}, not 12")
    if not report["designer_validity"]:
        problems.append(f"designer_validity is {report['designer_validity']}")
    if any(row["trained"] is None for row in report["held_out"]) or not report["held_out"]:
        problems.append("the end table is not complete")
    if report["peak_memory_gib"] is None or report["peak_memory_gib"] >= 6:
        problems.append(f"peak_memory_gib is {report['peak_memory_gib']}")
    for problem in problems:
        sys.stderr.write(f"report: {problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
