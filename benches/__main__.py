"""Run one benchmark, print its table, and write its figures with what they were measured on."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import pkgutil
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import benches


def names() -> list[str]:
    """Benchmarks there are."""
    found = pkgutil.iter_modules(benches.__path__)
    return sorted(m.name for m in found if m.name[0] != "_" and not m.ispkg)


def machine() -> dict[str, Any]:
    """What the figures were measured on: compare them only on the same."""
    return {
        "commit": _output("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1_minute": os.getloadavg()[0],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "rust": _output("rustc", "--version"),
        "unix_s": time.time(),
    }


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benches", description=benches.__doc__)
    parser.add_argument("name", choices=names(), help="which benchmark")
    parser.add_argument("--quick", action="store_true", help="smallest size: does it still run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--source", type=Path, metavar="FILE", help="your own environment")
    parser.add_argument("--steps", type=int, metavar="N", help="learner steps of each run")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="go on from the runs in there")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="write the picture there (SVG)")
    options = parser.parse_args()
    bench = importlib.import_module(f"benches.{options.name}")
    chosen = {name: getattr(options, name) for name in ("source", "draw", "steps", "keep")}
    known = inspect.signature(bench.run).parameters
    more = {name: value for name, value in chosen.items() if value is not None}
    for name in more.keys() - known.keys():
        parser.error(f"--{name}: the bench {options.name!r} has no such option")
    where = machine()
    started_s = time.monotonic()
    result = bench.run(options.quick, **more)
    print(f"{options.name}{' (quick)' if options.quick else ''} on {where['cpu']},", end=" ")
    print(f"{where['cores']} cores, load {where['load_1_minute']:.1f}, commit {where['commit']}")
    print(bench.table(result))
    if options.json is not None:
        facts = {
            "bench": options.name,
            "quick": options.quick,
            "seconds": time.monotonic() - started_s,
            "machine": where,
        }
        # Some files are read by key (`limit_us.F`), so their figures lie at the top.
        is_flat = getattr(bench, "AT_TOP", False) or {"limit_us", "memory_kib"} & result.keys()
        facts |= result if is_flat else {"result": result}
        options.json.write_text(json.dumps(facts, indent=2) + "\n")
    broken: list[str] = bench.failures(result) if hasattr(bench, "failures") else []
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _output(*argv: str) -> str | None:
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


if __name__ == "__main__":
    sys.exit(main())
