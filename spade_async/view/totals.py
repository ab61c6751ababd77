"""Figures of one run that the comparison and the page share: regret, classes, rates."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from spade_async.evals.figures import Mean, mean_of
from spade_async.view.order import CLASSES
from spade_async.view.run import ViewedRun


@dataclass(frozen=True, slots=True)
class Regrets:
    """Of the designed environments with a regret."""

    first: Mean
    """Regret of those first designed in the first third of the steps."""
    last: Mean
    """And in the last third."""
    all: Mean
    classes: dict[str, int]
    """How many are of each class now."""
    num_environments: int
    """Designed ones, with a regret or not."""


def regrets(run: ViewedRun, num_steps: int) -> Regrets:
    """Read them; one pass over the environments."""
    rows = run.ledger.query(
        "SELECT created_step, estimate_json FROM environments WHERE origin = 'designer'"
    )
    third = math.ceil(num_steps / 3)
    first: list[float] = []
    last: list[float] = []
    every: list[float] = []
    classes: Counter[str] = Counter()
    for created_step, estimate_json in rows:
        if estimate_json is None:
            continue
        estimate: dict[str, Any] = json.loads(estimate_json)
        regret = float(estimate["regret"])
        every.append(regret)
        classes[str(estimate["regret_class"])] += 1
        if created_step <= third:
            first.append(regret)
        if created_step > num_steps - third:
            last.append(regret)
    return Regrets(
        mean_of(first),
        mean_of(last),
        mean_of(every),
        {kind.value: classes[kind.value] for kind in CLASSES},
        len(rows),
    )
