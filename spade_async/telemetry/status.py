"""The state of a run as one record: written by the coordinator, read by display and `status`."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spade_async.disk.room import is_full
from spade_async.telemetry.alerts import Alert


class ProcessStatus(BaseModel):
    """One part of the run."""

    model_config = ConfigDict(extra="forbid")
    name: str
    pid: int | None = None
    state: str
    waits_for: str = ""
    oldest_wait_s: float = 0.0


class HungPart(BaseModel):
    """A part that lives and makes no progress."""

    model_config = ConfigDict(extra="forbid")
    name: str
    pid: int | None = None
    state: str
    """The state it stands still in, "silent", or "stalled" when all parts do."""
    seconds: float
    limit_s: float


class RunStatus(BaseModel):
    """Everything the live display shows; unknown numbers are None."""

    model_config = ConfigDict(extra="forbid")
    state: str
    """"starting", "warm_start", "running", "stopping", "stopped", "failed", "finished"."""
    step: int = 0
    steps: int = 0
    policy_version: str = "0.0"
    processes: list[ProcessStatus] = Field(default_factory=list)
    episodes_per_hour: float | None = None
    oldest_wait_seconds: float | None = None
    oldest_item: str = ""
    """The task that has been out longest and what the next step waits for, by name."""
    hung: list[HungPart] = Field(default_factory=list)
    """Parts that hang now; the supervisor acts on them."""
    limited_by: str = ""
    """One sentence: what limits this run now and the knob to turn."""
    alerts: list[Alert] = Field(default_factory=list)
    """The newest ones, oldest first."""
    metrics: dict[str, float] = Field(default_factory=dict)
    """Newest value of each metric, by TensorBoard tag."""
    updated_unix_s: float = 0.0
    failure: str | None = None
    """One line: who, why, what to do."""
    is_scripted: bool = False
    """No model: see `SCRIPTED_NOTE`."""


SCRIPTED_NOTE = (
    "scripted run: no model is sampled or trained; its figures say nothing about learning"
)
"""What is said wherever figures of such a run are shown."""


ENDED_STATES = frozenset({"stopped", "failed", "finished"})
"""States after which nothing of the run is alive."""


def write_status(path: Path, status: RunStatus) -> None:
    """Replace the status file atomically; a reader sees the old or the new one, whole.

    On a full disk it is written over in place, which takes no room: a reader that comes in the
    middle of that sees none.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    text = status.model_dump_json()
    try:
        temporary.write_text(text)
        os.replace(temporary, path)
    except OSError as cause:
        temporary.unlink(missing_ok=True)
        if not is_full(cause):
            raise
        with path.open("r+") as file:
            file.write(text)
            file.truncate()


def read_status(path: Path) -> RunStatus | None:
    """The last written status; None when there is none yet or it cannot be understood."""
    try:
        return RunStatus.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
