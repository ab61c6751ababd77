"""The state of a run as one record: written by the coordinator, read by display and `status`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spade_async.disk.room import is_full
from spade_async.telemetry.alerts import Alert
from spade_async.telemetry.clock import boot_id


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
    alarms: list[str] = Field(default_factory=list)
    """Kinds of the guards' alarms that hold now, such as "designer_collapse"."""
    metrics: dict[str, float] = Field(default_factory=dict)
    """Newest value of each metric, by TensorBoard tag."""
    updated_unix_s: float = 0.0
    """Wall clock of the last change, for people; see `age_s` for its age."""
    updated_s: float | None = None
    """The same by `time.monotonic` of the machine's start `boot_id`."""
    boot_id: str = ""
    failure: str | None = None
    """One line: who, why, what to do."""
    is_scripted: bool = False
    """No model: see `SCRIPTED_NOTE`."""
    is_fake: bool = False
    """A random model: see `FAKE_NOTE`."""

    def stamp(self) -> Self:
        """Say that it is of now."""
        self.updated_unix_s, self.updated_s = time.time(), time.monotonic()
        self.boot_id = boot_id()
        return self

    @property
    def age_s(self) -> float:
        """Seconds since it was stamped.

        Setting the wall clock changes nothing, but for a run on another machine: there it is all
        there is.
        """
        if self.updated_s is not None and self.boot_id and self.boot_id == boot_id():
            return time.monotonic() - self.updated_s
        return time.time() - self.updated_unix_s


SCRIPTED_NOTE = (
    "scripted run: no model is sampled or trained; its figures say nothing about learning"
)
"""What is said wherever figures of such a run are shown."""
FAKE_NOTE = (
    "fake weights: a tiny random model in the place of the recipe's; the parts are real, the "
    "figures mean nothing"
)
"""The same of a dry run (`train --fake-weights`)."""


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
