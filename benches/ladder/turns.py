"""Play all rungs in turns: noise of the machine then falls on all of them alike."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence

from benches.ladder.row import Row


def play(rows: Sequence[Row], num_rounds: int) -> None:
    """Round-robin over the rungs, each round in another order: none always follows the same one."""
    for row in rows:
        row.turn()  # warms caches; not counted
        row.samples.clear()
    order, chance = list(rows), random.Random(0)
    gc.collect()
    gc.disable()
    try:
        for number in range(num_rounds):
            chance.shuffle(order)
            for row in order:
                if number % row.every == 0:
                    row.turn()
            gc.collect()
    finally:
        gc.enable()
