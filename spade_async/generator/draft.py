"""What is known of a design so far, so that a fault keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spade_async.designer.verdict import Verdict
from spade_async.environment.session import JailUse
from spade_async.grounding.signature import Signature
from spade_async.types import Rejection, TokenTrace

EMPTY_TRACE = TokenTrace(
    np.zeros(0, np.int32), np.zeros(0, np.uint8), np.zeros(0, np.float32), np.zeros(0, np.int64)
)


@dataclass(slots=True)
class Draft:
    """One design; the fields are those of `DesignResult`."""

    source: str = ""
    rejection: Rejection | None = None
    hint: str | None = None
    leak: float = 0.0
    trace: TokenTrace = EMPTY_TRACE
    use: JailUse = field(default_factory=JailUse)
    timing: dict[str, float] = field(default_factory=dict)
    prompt: dict[str, Any] = field(default_factory=dict)
    signature: Signature = field(default_factory=lambda: np.zeros(0, np.int32))
    repaired: tuple[str, ...] = ()
    repair_turns: int = 0
    attempts: list[dict[str, Any]] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
