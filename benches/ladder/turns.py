"""Play all rungs in turns: noise of the machine then falls on all of them alike."""

from __future__ import annotations

import gc
from collections.abc import Sequence

from benches.ladder.row import Row


def play(rows: Sequence[Row], num_rounds: int) -> None:
    """Round-robin over the rungs; the order turns round every second round."""
    for row in rows:
        row.turn()  # warms caches; not counted
        row.samples.clear()
    gc.collect()
    gc.disable()
    try:
        for number in range(num_rounds):
            order = rows if number % 2 == 0 else rows[::-1]
            for row in order:
                if number % row.every == 0:
                    row.turn()
            gc.collect()
    finally:
        gc.enable()
