"""A scripted run on a small file system of its own, which is filled and freed while it goes on.

Run as a program, inside a mount namespace of its own (`unshare -m`), by
`integration/test_run_full_disk.py`; prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from tests.support.whole_run import WholeRun, whole_run

MOUNT_MIB = 240
"""A run refuses to start below 200 MiB."""
QUIET_S = 4.0


def main(mount: Path, filled_to: str) -> dict[str, Any]:
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={MOUNT_MIB}m", "tmpfs", str(mount)], check=True
    )
    settings = {
        "scripted__token_s": 0.0005, "scripted__learner_s": 0.05, "train__steps": 100_000,
        "weights__location": "run_folder", "eval__every": 1_000_000,
        "run__alert_command": f"cat >> {mount.parent / 'commanded'}",
    }  # fmt: skip
    with whole_run(mount / "run", None, **settings) as run:
        run.start()
        run.wait_steps(3)
        filler = mount / "filler"
        leave = 0 if filled_to == "the last byte" else 4 << 20
        fill(filler, leave=leave)
        run.wait(lambda: is_waiting(run), 60.0, "the run says that it waits")
        before = run.status()
        if not leave:
            fill(filler, leave=0)  # what the run gave up since, its ballast above all
        time.sleep(QUIET_S)
        after = run.status()
        limited_by = after.limited_by
        filler.unlink()
        goal = after.step + 3
        run.wait(lambda: run.status().step >= goal, 60.0, "the run goes on")
        run.send(signal.SIGINT)
        ended = run.end(60.0)
        report = run.report()
        return {
            "code": ended.code,
            "steps_while_full": after.step - before.step,
            "limited_by": limited_by,
            "alerts": [json.loads(x)["kind"] for x in run.folder.alerts.read_text().splitlines()],
            "commanded": (mount.parent / "commanded").read_text().count("disk_full"),
            "report": report,
            "twice_shown": twice_shown(run),
            "restarts": report["restarts"],
        }


def fill(path: Path, *, leave: int) -> None:
    """Take all room but `leave` bytes."""
    piece = 64 << 20
    with path.open("ab") as file:
        while piece >= 4096:
            found = os.fstatvfs(file.fileno())
            size = min(piece, found.f_bavail * found.f_frsize - leave)
            try:
                if size <= 0:
                    return
                # The run writes as well: what was free a moment ago may be gone.
                os.posix_fallocate(file.fileno(), path.stat().st_size, size)
            except OSError:
                piece //= 2


def is_waiting(run: WholeRun) -> bool:
    """Whether the newest status says so."""
    return run.status().limited_by.startswith("disk: ")


def twice_shown(run: WholeRun) -> list[int]:
    """Steps that TensorBoard shows twice or not at all."""
    events = EventAccumulator(str(run.folder.tensorboard))
    events.Reload()
    steps = Counter(event.step for event in events.Tensors("learner/step_s"))
    last = max(steps)
    return [step for step in range(1, last + 1) if steps[step] != 1]


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
