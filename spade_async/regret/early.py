"""When the class of an environment is certain, so that no more pairs of it need to be played.

**Stochastic curtailment.** Pairs are played in blocks. After each block the question is not what
the environment truly is (8 or 16 pairs cannot tell 0.9 from 0.85) but what the *full count* would
say of it. If the rest of the pairs cannot change that any more, going on is waste: that is
curtailment, and it never changes a class. Between is chance: each arm's remaining successes are
beta-binomial given what was seen, under the prior Beta(PRIOR, PRIOR), and the environment is
stopped when the full count would say otherwise with probability at most `error`.

The prior is the shape that environments have: most are at one of both ends (the paper finds 16 to
31 % of them between success 0.2 and 0.8; this prior has 22 % there).

Why not a confidence sequence on the success itself: to tell that it is above 0.9 with 5 % error
takes 29 successes in a row. At the 8 or 16 pairs that there are it could only ever stop frontier
environments, and would play the mastered ones to the end.

Sources: Lan, Simon, Halperin, "Stochastically curtailed tests" (1982); Alling, "Closed sequential
tests for binomial probabilities" (1966); Spiegelhalter, Freedman, Blackburn, "Monitoring clinical
trials: conditional or predictive power?" (1986). Figures: docs/regret.md, `benches early_class`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from spade_async.types import RegretClass

Pair = tuple[float | None, float | None]
"""(return with hint, return without) on one seed; None where the episode is missing."""

PRIOR = 0.2
"""Both parameters of the prior of an environment's success."""
FEWEST = 2
"""Complete pairs below which nothing is certain: a standard error needs two."""
_EDGE = 1e-9
"""Sums of thirds and tenths miss a threshold by rounding."""


def success(episode_return: float) -> float:
    """A return in [-1, 1] as success in [0, 1]."""
    return min(1.0, max(0.0, episode_return))


def classify(
    plain: float, hinted: float, num: int, *, mastered_at: float, out_of_reach_at: float
) -> RegretClass:
    """The class that goes with so many summed successes of `num` complete pairs."""
    if plain >= mastered_at * num - _EDGE:
        return RegretClass.MASTERED
    if hinted <= out_of_reach_at * num + _EDGE:
        return RegretClass.OUT_OF_REACH
    return RegretClass.FRONTIER


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyClass:
    """The rule for one environment.

    Example: 8 pairs planned in blocks of 2, thresholds 0.9 and 0.1, error 0. After (1, 0), (1, 1)
    the full count can be neither mastered (7 of 8 at most) nor out of reach (2 of 8 at least), so
    6 pairs are never played.
    """

    planned: int
    """Pairs of the full count."""
    block: int
    """Pairs between two looks."""
    error: float
    """Chance that the full count would say otherwise, up to which a class is certain; 0: none."""
    mastered_at: float
    out_of_reach_at: float

    def next_block(self, played: int) -> int:
        """Pairs played after one more block."""
        return min(self.planned, played + self.block)

    def is_look(self, played: int) -> bool:
        """Whether it is asked after that many pairs."""
        return played == self.planned or (played > 0 and played % self.block == 0)

    def look(self, pairs: Sequence[Pair]) -> RegretClass | None:
        """The class if it is certain after these pairs, else None; order plays no part.

        Missing pairs count as played and say nothing. A class is never certain before `FEWEST`
        complete pairs. After the last pair there is nothing to be certain of: None.
        """
        complete = [(h, p) for h, p in pairs if h is not None and p is not None]
        if len(complete) < FEWEST or len(pairs) >= self.planned:
            return None
        plain = math.fsum(success(p) for _, p in complete)
        hinted = math.fsum(success(h) for h, _ in complete)
        return self.certain(plain, hinted, len(complete), self.planned - len(pairs))

    def certain(self, plain: float, hinted: float, num: int, left: int) -> RegretClass | None:
        """The same from summed successes of `num` complete pairs with `left` to come."""
        total = num + left
        mastered = _chance(plain, num, left, self.mastered_at * total)
        in_reach = _chance(hinted, num, left, self.out_of_reach_at * total, strictly=True)
        if mastered >= 1.0 - self.error:
            return RegretClass.MASTERED
        # Sums of chances: they hold whatever the dependence between the arms.
        if mastered + in_reach <= self.error:
            return RegretClass.OUT_OF_REACH
        if mastered + (1.0 - in_reach) <= self.error:
            return RegretClass.FRONTIER
        return None


def _chance(seen: float, num: int, left: int, needed: float, *, strictly: bool = False) -> float:
    """Chance that `seen` and the successes to come reach `needed` (or pass it, if `strictly`).

    Exactly 0.0 or 1.0 when what is to come cannot change it.
    """
    least = needed - seen + (_EDGE if strictly else -_EDGE)
    fewest = math.floor(least) + 1 if strictly else math.ceil(least)
    if fewest <= 0:
        return 1.0
    if fewest > left:
        return 0.0
    return _at_least(fewest, left, seen, num)


@lru_cache(maxsize=4096)
def _at_least(fewest: int, left: int, seen: float, num: int) -> float:
    """Beta-binomial chance of at least `fewest` successes among `left`."""
    wins, losses = seen + PRIOR, num - seen + PRIOR
    return min(
        1.0,
        math.fsum(
            math.comb(left, j) * math.exp(_log_beta(wins + j, losses + left - j))
            for j in range(fewest, left + 1)
        )
        / math.exp(_log_beta(wins, losses)),
    )


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
