"""The frontier penalty: squared distance of the solve rate from one half.

    frontier(w) = (w - 0.5)^2

At most 0.25. In a blend it is divided by 0.08, so that w = 0 or 1 costs 3.1 weights. Source:
SPADE's code (weight 0 in its recipes). Use it instead of the plateau when the exact middle should
win; its gradient points to 0.5 everywhere, also where the plateau is flat.
"""

from __future__ import annotations


def frontier(solve_rate: float) -> float:
    """Penalty in [0, 0.25] for a solve rate in [0, 1]."""
    return (solve_rate - 0.5) ** 2
