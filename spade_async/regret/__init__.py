"""Hint-based regret (step 6): its estimate, its class, and what says that hints mislead.

`estimate` is the only place where a regret is computed (`unpaired` by the reference's rule);
`early` says when no more pairs are worth playing, `stopped` keeps the estimate unbiased when they
are not, `confidence` is the lower bound.
"""

from __future__ import annotations

from spade_async.regret.confidence import lower_bound
from spade_async.regret.early import EarlyClass, Pair
from spade_async.regret.estimate import Pay, estimate
from spade_async.regret.unpaired import filled, unpaired

__all__ = ["EarlyClass", "Pair", "Pay", "estimate", "filled", "lower_bound", "unpaired"]
