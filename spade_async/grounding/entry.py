"""One remembered environment as a row, and the table that keeps such rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from spade_async.grounding.signature import Signature
from spade_async.types import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An environment with its newest estimate, as far as memory needs it."""

    number: int = 0
    """Order of remembering; 0 until it is stored."""
    environment_id: str
    skeleton: str
    skill: str
    """Of the design that was measured."""
    kind: str
    """What it is good for: the regret's class; in compatibility mode "inspire", "avoid" or ""."""
    rank: float
    """Order among those of its kind, highest first."""
    step: int
    """Learner step of the estimate."""
    regret: float
    mean_no_hint: float
    mean_with_hint: float
    win_rate: float
    """Share of unhinted episodes that earned something."""
    num_alike: int = 0
    """Later designs that were near copies of it, itself included."""
    signature: Signature | None = None


class MemoryTable(Protocol):
    """Where entries are kept; changes belong into a transaction of the ledger."""

    def add_entry(self, entry: Entry, keys: Sequence[int]) -> int:
        """Store one under its band keys; its number, larger than all before."""

    def drop_entry(self, number: int) -> None:
        """Remove one and its keys."""

    def count_alike(self, number: int) -> None:
        """One more design was a near copy of this one."""

    def num_entries(self, kind: str | None = None) -> int:
        """How many there are, of all kinds or of one."""

    def entry_bounds(self) -> tuple[int, int] | None:
        """Smallest and largest number; None when there is none."""

    def entry(self, number: int) -> Entry | None:
        """One by number."""

    def entry_of(self, environment_id: str, skeleton: str) -> Entry | None:
        """That of this environment, else the newest of its skeleton."""

    def entries_near(self, keys: Sequence[int], limit: int) -> list[Entry]:
        """Those that share most keys, at most `limit`."""

    def best_entries(
        self, kind: str, limit: int, *, skill: str | None = None, offset: int = 0
    ) -> list[Entry]:
        """Those of a kind by rank, then by environment id; of one skill or of all."""

    def crowded_entries(self, skill: str, limit: int) -> list[Entry]:
        """Those with most near copies."""

    def environment_of(self, environment_id: str) -> Environment:
        """The environment itself."""
