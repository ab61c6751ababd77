"""What a resumed run recalls of the environments it has designed, from the ledger."""

from __future__ import annotations

from spade_async.coordinator.core import Core
from spade_async.grounding.diversity import Design


def recall_diversity(core: Core) -> None:
    """Count the designs of the run again, as the process before had counted them."""
    ledger = core.ledger
    recent = [Design(*row) for row in ledger.last_designs(core.diversity.window)]
    core.diversity.restore(ledger.skeleton_counts(), recent, ())
