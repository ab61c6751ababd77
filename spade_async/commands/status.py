"""`spade-async status`: the last known state of a run, live or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from spade_async.config.load import load_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.errors import RunFolderError
from spade_async.supervisor.folder import holder
from spade_async.supervisor.panel import panel
from spade_async.telemetry.silence import with_silence
from spade_async.telemetry.status import ENDED_STATES, RunStatus, read_status


def current_status(run_dir: Path) -> RunStatus:
    """Status of a run, corrected when its supervisor is gone without having said how it ended.

    Raises:
        ConfigError: not a run folder.
        RunFolderError: the run has not written a status yet.
    """
    load_resolved(run_dir)
    folder = RunFolder(run_dir)
    status = read_status(folder.status)
    if status is None:
        raise RunFolderError(f"{run_dir} has no status yet: try again in a second")
    if status.state in ENDED_STATES:
        status.processes = []
    elif holder(folder) is None:
        status.state = "failed"
        status.failure = (
            "the supervisor is gone without a word (killed?); "
            f"go on with spade-async train {run_dir} --resume"
        )
        status.processes = []
    else:
        with_silence(status)
    return status


def as_json(status: RunStatus) -> dict[str, Any]:
    """The keys of ``status --json``; unknown numbers are None."""
    return {
        "state": status.state,
        "step": status.step,
        "steps": status.steps,
        "policy_version": status.policy_version,
        "processes": [process.model_dump() for process in status.processes],
        "episodes_per_hour": status.episodes_per_hour,
        "oldest_wait_seconds": status.oldest_wait_seconds,
        "limited_by": status.limited_by,
        "alerts": [alert.model_dump() for alert in status.alerts],
        "alarms": status.alarms,
        "corpus_bad_rows": status.metrics.get("grounding/bad_rows"),
        "failure": status.failure,
        "scripted": status.is_scripted,
        "fake_weights": status.is_fake,
        "updated_unix_s": status.updated_unix_s,
    }


def status(run_dir: Path, *, json_output: bool, console: Console) -> None:
    """Print the state of a run."""
    now = current_status(run_dir)
    if json_output:
        print(json.dumps(as_json(now), indent=2))
    else:
        console.print(panel(now))
