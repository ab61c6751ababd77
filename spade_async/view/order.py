"""Which environment is better than which: the order of `show best`, `export` and the page.

By class (frontier, mastered, out of reach, none), then by the lower bound of the regret: regret
less two standard errors, and of what remains the part that the hint does not give away by itself.
An environment whose standard error is not known (one pair) comes after all of its class that have
one: its bound is not known either. Ties go by the id, so that the order is the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from spade_async.ledger.rows import EnvironmentRow
from spade_async.types import RegretClass

CLASSES = (RegretClass.FRONTIER, RegretClass.MASTERED, RegretClass.OUT_OF_REACH)
"""Best first: at the frontier there is something to learn; what is out of reach may be broken."""
NUM_ERRORS = 2.0
"""Standard errors below the mean; the same noise mark as in the end table."""


def lower_bound(estimate: dict[str, Any] | None, leak_share: float = 0.0) -> float | None:
    """What the regret is at least, in return; None without an estimate or its standard error.

    Example: regret .5 ± .1, the hint alone is the answer on half of the seeds: (.5 - .2) * .5.
    """
    if estimate is None or estimate.get("standard_error") is None:
        return None
    bound = float(estimate["regret"]) - NUM_ERRORS * float(estimate["standard_error"])
    return bound * (1.0 - leak_share) if bound > 0 else bound


def best_first(rows: Iterable[EnvironmentRow]) -> list[EnvironmentRow]:
    """The rows in the order of this page."""
    return sorted(rows, key=_key)


def _key(row: EnvironmentRow) -> tuple[int, float, float, str]:
    estimate = row.estimate
    bound = lower_bound(estimate, row.environment.leak_share)
    regret = -math.inf if estimate is None else float(estimate["regret"])
    return (
        class_rank(None if estimate is None else str(estimate["regret_class"])),
        math.inf if bound is None else -bound,
        -regret,
        row.environment.environment_id,
    )


def class_rank(name: str | None) -> int:
    """Place of a class, 0 is best; unknown ones and none come last."""
    names = [kind.value for kind in CLASSES]
    return names.index(name) if name in names else len(names)
