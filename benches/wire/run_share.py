"""What part of a real run's time its link takes, from the run's own counters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benches._scratch import scratch
from spade_async.config.run_folder import RunFolder
from spade_async.telemetry.status import read_status

ROOT = Path(__file__).parents[2]


def run_share(steps: int) -> dict[str, Any]:
    """Train the nano model for a few steps (the model is made first where it is not cached)."""
    with scratch() as folder:
        run = folder / "run"
        spade = [sys.executable, "-m", "spade_async"]
        sets = ["--set", f"train.steps={steps}", "--set", "eval.instances_per_level=48"]
        train = [*spade, "train", "configs/nano.toml", *sets, "--run-dir", str(run)]
        subprocess.run(train, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        report = [*spade, "report", str(run), "--json"]
        said = subprocess.run(report, cwd=ROOT, check=True, capture_output=True, text=True)
        status = read_status(RunFolder(run).status)
    assert status is not None
    wall_s = float(json.loads(said.stdout)["wall_seconds"])
    busy_s = status.metrics["link/busy_s"]
    return {
        "steps": steps,
        "wall_s": wall_s,
        "link_s_of_all_parts": busy_s,
        "share_of_wall_time": busy_s / wall_s,
        "last_step_share": status.metrics["link/busy_share"],
        **{
            name: status.metrics[f"link/{name}"]
            for name in ("resent", "duplicates", "lost", "refused")
        },
    }
