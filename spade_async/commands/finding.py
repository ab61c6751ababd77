"""One thing that `spade-async doctor` tried, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was tried."""

    name: str
    ok: bool
    needed: bool
    """Whether a training run is impossible without it."""
    detail: str
    remedy: str = ""
    """What to do when it is missing."""
