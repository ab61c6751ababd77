"""The plateau: full pay while the solve rate w is in a band, linear ramps beside it.

    plateau(w) = 1                                   for low <= w <= high
               = max(0, 1 - (low - w) / ramp)        below
               = max(0, 1 - (w - high) / ramp)       above

With the defaults 0.4, 0.6, 0.25 it is 0 up to 0.15 and from 0.85. Source: SPADE (arXiv 2608.19197),
its blend reward. Use it for difficulty that should stay in the middle; it cannot tell an
environment of middle difficulty from one half of whose instances are trivial and half impossible.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plateau:
    """The band and its ramps."""

    low: float = 0.4
    high: float = 0.6
    ramp: float = 0.25

    def __call__(self, solve_rate: float) -> float:
        """Value in [0, 1] of a mean return."""
        outside = max(self.low - solve_rate, solve_rate - self.high, 0.0)
        return max(0.0, 1.0 - outside / self.ramp) if outside > 0.0 else 1.0


USUAL = Plateau()
"""The band of the paper's recipes."""
