"""What one stage of validation found (design step 3)."""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.types import Outcome, Stage


@dataclass(frozen=True, slots=True)
class StageResult:
    """What one stage found; stages that were not reached are not listed."""

    stage: Stage
    ok: bool
    detail: str
    """One bounded line, safe to print."""
    seconds: float
    """Wall time of the jail calls that decided it; 0 when it only compared what was there."""
    outcome: Outcome | None = None
    """Outcome of the call that failed, where there was one."""
