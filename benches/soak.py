"""A long run with a slow learner: what grows with its steps, and what does not.

Real processes, link, ledger and event files; engine and learner are scripted, so that a thousand
steps pass in minutes. Memory of its own (anonymous), descriptors and threads of each process, the
write-ahead log, the ledger and the coordinator's CPU are sampled and fitted by a line over the
steps after the warm-up. Neighbouring samples are alike, so the standard error counts as many
samples as their correlation leaves. What may grow (rows of the ledger, event files) must do so by
the same amount per sample and step.
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benches._scratch import scratch
from spade_async.config.run_folder import RunFolder
from spade_async.ledger import LedgerReader
from spade_async.supervisor.folder import read_info
from spade_async.supervisor.processes import descendants, facts
from spade_async.telemetry.status import read_status

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "configs" / "scripted.toml"
STEPS, QUICK_STEPS = 1000, 60
LEARNER_S = 0.15
"""Slow against generation, which keeps to the bound and waits."""
WARM_UP_SHARE = 0.25
EVERY_S, QUICK_EVERY_S = 1.0, 0.2
LARGEST_GROWTH = {"own_bytes": 2 << 20, "wal_bytes": 4 << 20, "fds": 1.0, "threads": 1.0}
"""Growth over the fitted steps that counts as none even when the line says it is real."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A line over steps."""

    mean: float
    slope: float
    """Per step."""
    standard_error: float
    """Of the slope, with the correlation of neighbouring samples."""
    span: float
    """Steps it goes over."""

    @property
    def growth(self) -> float:
        """Over the fitted steps."""
        return self.slope * self.span

    def is_flat(self, least: float) -> bool:
        """Whether the slope is within noise, or the growth too small to be one."""
        return self.slope <= 3.0 * self.standard_error or self.growth < least


def fit(x: Sequence[float], y: Sequence[float]) -> Fit:
    """Least squares; the error of the slope is widened by the residuals' correlation at lag 1."""
    n = len(x)
    if n < 4 or max(x) == min(x):
        raise ValueError(f"{n} samples over {max(x) - min(x) if x else 0} steps: nothing to fit")
    mean_x, mean_y = sum(x) / n, sum(y) / n
    spread = sum((a - mean_x) ** 2 for a in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    left = [b - mean_y - slope * (a - mean_x) for a, b in zip(x, y, strict=True)]
    power = sum(r * r for r in left)
    lag = sum(a * b for a, b in itertools.pairwise(left)) / power if power > 0 else 0.0
    lag = min(max(lag, 0.0), 0.95)
    error = math.sqrt(power / (n - 2) / spread * (1 + lag) / (1 - lag))
    return Fit(mean_y, slope, error, max(x) - min(x))


@dataclass(slots=True)
class Samples:
    """Everything that was read, a row per moment."""

    unix_s: list[float] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    parts: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    folder: dict[str, list[float]] = field(default_factory=dict)

    def add(self, step: int, folder: RunFolder, pids: dict[str, int]) -> None:
        """Read all of it now; a moment at which a part is missing is left out."""
        parts = {name: _process(pid) for name, pid in pids.items()}
        if not all(parts.values()):
            return
        self.unix_s.append(time.time())
        self.step.append(step)
        for name, figures in parts.items():
            for key, value in (figures or {}).items():
                self.parts.setdefault(name, {}).setdefault(key, []).append(value)
        wal = folder.ledger.with_name(folder.ledger.name + "-wal")
        sizes = {
            "ledger_bytes": _size(folder.ledger),
            "wal_bytes": _size(wal),
            "event_bytes": sum(_size(p) for p in folder.tensorboard.glob("*")),
            "log_bytes": sum(_size(p) for p in folder.logs.glob("*")),
        }
        for key, value in sizes.items():
            self.folder.setdefault(key, []).append(value)


def _process(pid: int) -> dict[str, float] | None:
    try:
        fds = len(os.listdir(f"/proc/{pid}/fd"))
        threads = len(os.listdir(f"/proc/{pid}/task"))
        own_bytes = _own_bytes(pid)
    except OSError:
        return None
    found = facts(pid)
    if found is None or found.state in "ZX":
        return None
    return {
        "own_bytes": own_bytes,
        "fds": float(fds),
        "threads": float(threads),
        "cpu_s": found.cpu_s,
    }


def _own_bytes(pid: int) -> float:
    """Anonymous memory. Not the proportional set size: its share of common files grows whenever
    another process of this machine that maps them ends."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return float(sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) << 10)


def _size(path: Path) -> float:
    try:
        return float(path.stat().st_size)
    except OSError:
        return 0.0


def command(root: Path, num_steps: int) -> list[str]:
    """The run that is watched."""
    values = {
        "train.steps": num_steps,
        "scripted.learner_s": LEARNER_S,
        "scripted.token_s": 0.0005,
        "eval.every": max(num_steps // 10, 1),
        "async.staleness": 2,
    }
    sets = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    return [
        sys.executable,
        "-m",
        "spade_async",
        "train",
        str(CONFIG),
        *sets,
        "--run-dir",
        str(root),
    ]


def watch(root: Path, num_steps: int, every_s: float) -> Samples:
    """Run it to its end and sample it."""
    samples, folder = Samples(), RunFolder(root)
    with (root.parent / "out").open("w") as out:
        run = subprocess.Popen(
            command(root, num_steps), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        while run.poll() is None:
            time.sleep(every_s)
            status = read_status(folder.status)
            known = read_info(folder).get("processes", {})
            if status is None or status.state != "running" or status.step < 1 or not known:
                continue
            pids = {name: int(process["pid"]) for name, process in known.items()}
            samples.add(status.step, folder, {"supervisor": run.pid, **pids})
    finally:
        if run.poll() is None:
            below = descendants(run.pid)
            run.kill()
            for process in below:
                os.kill(process.pid, 9)
        run.wait()
    if run.returncode != 0:
        raise RuntimeError(
            f"the run ended with {run.returncode}: {(root.parent / 'out').read_text()}"
        )
    return samples


def ledger_figures(root: Path) -> tuple[list[float], list[tuple[int, float]]]:
    """(when each sample was made, (step, when it was done))."""
    with LedgerReader.open(RunFolder(root).ledger) as ledger:
        assert ledger.trained_twice() == ledger.lost() == 0
        made = ledger.query("SELECT created_unix_s FROM samples ORDER BY created_unix_s")
        return [row[0] for row in made], [(row.step, row.wall_unix_s) for row in ledger.steps()]


def analyse(samples: Samples, made_s: list[float], num_steps: int) -> dict[str, Any]:
    """Lines over the steps after the warm-up, and bytes per sample in both halves of them."""
    first = next(i for i, step in enumerate(samples.step) if step >= WARM_UP_SHARE * num_steps)
    steps = [float(step) for step in samples.step[first:]]
    parts: dict[str, Any] = {}
    for name, series in samples.parts.items():
        lines = {key: fit(steps, values[first:]) for key, values in series.items()}
        parts[name] = {key: asdict(line) for key, line in lines.items() if key != "cpu_s"}
        cpu_s = series["cpu_s"][first:]
        parts[name]["cpu_ms_per_step"] = _halves(steps, [1e3 * value for value in cpu_s])
    count = [float(bisect.bisect_right(made_s, at)) for at in samples.unix_s[first:]]
    files = {key: values[first:] for key, values in samples.folder.items()}
    whole = [a + b for a, b in zip(files["ledger_bytes"], files["wal_bytes"], strict=True)]
    return {
        "steps": num_steps,
        "samples": len(made_s),
        "moments": len(steps),
        "parts": parts,
        "wal": asdict(fit(steps, files["wal_bytes"])),
        "ledger_bytes_per_sample": _halves(count, files["ledger_bytes"]),
        "ledger_and_wal_bytes_per_sample": _halves(count, whole),
        "event_bytes_per_step": _halves(steps, files["event_bytes"]),
        "log_bytes_per_step": _halves(steps, files["log_bytes"]),
    }


def _halves(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """Growth per unit of x in the first and in the second half of what is given."""
    middle = bisect.bisect_left(x, (x[0] + x[-1]) / 2)
    first = (y[middle] - y[0]) / max(x[middle] - x[0], 1e-9)
    second = (y[-1] - y[middle]) / max(x[-1] - x[middle], 1e-9)
    return {"first_half": first, "second_half": second}


def run(quick: bool, steps: int | None = None) -> dict[str, Any]:
    """The whole measurement, over `steps` learner steps when they are given."""
    num_steps = steps or (QUICK_STEPS if quick else STEPS)
    with scratch() as parent:
        samples = watch(parent / "run", num_steps, QUICK_EVERY_S if quick else EVERY_S)
        made_s, ends = ledger_figures(parent / "run")
        result = analyse(samples, made_s, num_steps)
        middle = len(ends) // 2
        result["step_s"] = {
            "first_half": (ends[middle][1] - ends[0][1]) / max(middle, 1),
            "second_half": (ends[-1][1] - ends[middle][1]) / max(len(ends) - 1 - middle, 1),
        }
        result["quick"] = quick
        return result


def table(result: dict[str, Any]) -> str:
    """One line per quantity."""
    lines = [
        f"{result['steps']} steps, {result['samples']} samples; {result['moments']} moments after "
        "the warm-up",
        f"{'':34}{'mean':>12}{'per 1000 steps':>18}{'+- s.e.':>12}",
    ]
    for name, part in result["parts"].items():
        for key, unit, scale in (("own_bytes", "MiB", 2**20), ("fds", "", 1), ("threads", "", 1)):
            line = part[key]
            lines.append(
                f"{name + ' ' + key.removesuffix('_bytes') + ' ' + unit:34}"
                f"{line['mean'] / scale:12.2f}{1e3 * line['slope'] / scale:18.3f}"
                f"{1e3 * line['standard_error'] / scale:12.3f}"
            )
    wal = result["wal"]
    lines.append(
        f"{'write-ahead log MiB':34}{wal['mean'] / 2**20:12.2f}"
        f"{1e3 * wal['slope'] / 2**20:18.3f}{1e3 * wal['standard_error'] / 2**20:12.3f}"
    )
    lines.append(f"{'':34}{'first half':>12}{'second half':>18}")
    pairs = {
        "ledger bytes per sample": result["ledger_bytes_per_sample"],
        "ledger and log bytes per sample": result["ledger_and_wal_bytes_per_sample"],
        "event file bytes per step": result["event_bytes_per_step"],
        "log file bytes per step": result["log_bytes_per_step"],
        "seconds per step": result["step_s"],
    }
    for name, part in result["parts"].items():
        pairs[f"{name} CPU ms per step"] = part["cpu_ms_per_step"]
    for name, halves in pairs.items():
        lines.append(f"{name:34}{halves['first_half']:12.2f}{halves['second_half']:18.2f}")
    return "\n".join(lines)


def failures(result: dict[str, Any]) -> list[str]:
    """What grew that should not; too few steps say nothing."""
    if result["quick"]:
        return []
    broken = []
    for name, part in result["parts"].items():
        for key, least in LARGEST_GROWTH.items():
            if key in part and not Fit(**part[key]).is_flat(least):
                line = Fit(**part[key])
                broken.append(
                    f"{name}: {key} grows by {line.slope:.1f} +- {line.standard_error:.1f} a step"
                )
    if not Fit(**result["wal"]).is_flat(LARGEST_GROWTH["wal_bytes"]):
        broken.append(f"the write-ahead log grows by {result['wal']['slope']:.0f} bytes a step")
    halves = result["ledger_and_wal_bytes_per_sample"]
    if halves["second_half"] > 1.1 * halves["first_half"]:
        broken.append(f"a sample costs the ledger more and more: {json.dumps(halves)}")
    return broken
