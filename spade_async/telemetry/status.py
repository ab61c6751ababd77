"""The state of a run as one record: written by the coordinator, read by display and `status`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ProcessStatus(BaseModel):
    """One part of the run."""

    model_config = ConfigDict(extra="forbid")
    name: str
    pid: int | None = None
    state: str
    waits_for: str = ""
    oldest_wait_s: float = 0.0


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
    limited_by: str = ""
    """One sentence: what limits this run now and the knob to turn."""
    alerts: list[str] = Field(default_factory=list)
    metrics: dict[str, float] = Field(default_factory=dict)
    """Newest value of each metric, by TensorBoard tag."""
    updated_unix_s: float = 0.0
    failure: str | None = None
    """One line: who, why, what to do."""
