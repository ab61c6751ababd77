"""The mean over pairs when their number was decided by the pairs themselves: without bias.

The plain mean of what was played is biased: an environment that is stopped after a lucky block
keeps its luck, one that goes on dilutes it. The mean of the *first look* (the first block, before
anything was decided) has no bias, and wastes what came after. Its expectation given what was played
in the end, in whatever order, wastes nothing and has the same mean: by the exchange of seeds every
order of the same pairs that would not have stopped earlier is equally likely, so it is the average
of the first look over those orders, found by counting. Without a rule all orders count, and it is
the plain mean with the plain standard error.

The variance is estimated the same way: ``T^2 - E[product of two pairs of the first look | pairs]``,
whose mean is exactly the variance of T.

Sources: Girshick, Mosteller, Savage, "Unbiased estimates for certain binomial sampling problems"
(1946); Blackwell, "Conditional expectation and unbiased sequential estimation" (1947). Both
statements are checked by enumeration in tests/unit/regret/test_stopped.py.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev

from spade_async.regret.early import FEWEST, EarlyClass, Pair, success

MOST_STATES = 4096
"""Multisets of pairs up to which orders are counted; beyond, the first look alone is the estimate.
The choice depends on the pairs but not on their order, so it adds no bias."""


@dataclass(frozen=True, slots=True)
class Means:
    """Unbiased means over pairs."""

    hinted: float
    plain: float
    standard_error: float | None
    """Of hinted - plain; None with fewer than two complete pairs."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over orders: of 1, of both means of the first look, of the product of two pairs."""

    orders: int = 0
    hinted: float = 0.0
    plain: float = 0.0
    product: float = 0.0

    def plus(self, other: _Sums, times: int) -> _Sums:
        return _Sums(
            self.orders + times * other.orders,
            self.hinted + times * other.hinted,
            self.plain + times * other.plain,
            self.product + times * other.product,
        )


def unbiased_means(pairs: Sequence[Pair], rule: EarlyClass | None) -> Means:
    """Means of what was played under `rule`, in order of the seeds.

    Args:
        pairs: played ones, at least one complete; missing ones take part as such.
        rule: what decided their number; None: it was fixed.
    """
    if rule is None or rule.next_block(0) >= len(pairs):
        return _plain(pairs)
    kinds = Counter(_without_half(pair) for pair in pairs)
    if math.prod(count + 1 for count in kinds.values()) > MOST_STATES:
        return _plain(pairs[: _first_look(pairs, rule)])
    found = _Orders(rule, kinds).sums()
    if found.orders == 0:
        # Played on although the rule would have stopped every order of them.
        return _plain(pairs[: _first_look(pairs, rule)])
    hinted, plain = found.hinted / found.orders, found.plain / found.orders
    error = None
    if sum(None not in pair for pair in pairs) >= FEWEST:
        # An unbiased estimate of a variance can fall below 0; the variance cannot.
        error = math.sqrt(max(0.0, (hinted - plain) ** 2 - found.product / found.orders))
    return Means(hinted, plain, error)


def _plain(pairs: Sequence[Pair]) -> Means:
    complete = [(h, p) for h, p in pairs if h is not None and p is not None]
    num = len(complete)
    error = stdev(h - p for h, p in complete) / math.sqrt(num) if num >= FEWEST else None
    return Means(fmean(h for h, _ in complete), fmean(p for _, p in complete), error)


def _without_half(pair: Pair) -> Pair:
    """A pair with one side is as missing as one without any."""
    return pair if None not in pair else (None, None)


def _first_look(pairs: Sequence[Pair], rule: EarlyClass) -> int:
    """Pairs at the first look with enough complete ones to decide anything."""
    played = 0
    while played < len(pairs):
        played = min(rule.next_block(played), len(pairs))
        if sum(None not in pair for pair in pairs[:played]) >= FEWEST:
            break
    return played


def _of_look(counts: Counter[Pair]) -> tuple[float, float, float]:
    """Mean with hint, mean without, mean product of the differences of two different pairs."""
    complete = [
        (h, p) for (h, p), n in counts.items() if h is not None and p is not None for _ in range(n)
    ]
    differences = [h - p for h, p in complete]
    num, total = len(complete), math.fsum(differences)
    squares = math.fsum(d * d for d in differences)
    product = (total * total - squares) / (num * (num - 1)) if num > 1 else 0.0
    return fmean(h for h, _ in complete), fmean(p for _, p in complete), product


class _Orders:
    """Counts the orders of one multiset of pairs that the rule would not have stopped before."""

    def __init__(self, rule: EarlyClass, kinds: Counter[Pair]) -> None:
        self._rule = rule
        self._kinds = list(kinds)
        self._end = tuple(kinds.values())
        self._total = sum(self._end)
        self._ways = cache(self._count_ways)

    def sums(self) -> _Sums:
        """Over all orders."""
        return self._from(tuple(0 for _ in self._end))

    def _from(self, at: tuple[int, ...]) -> _Sums:
        """Over the orders that go on from `at`, which is before the first look that counts."""
        found = _Sums()
        for then, times in self._blocks(at):
            counts = Counter(dict(zip(self._kinds, then, strict=True)))
            if then != self._end and self._num_complete(then) < FEWEST:
                found = found.plus(self._from(then), times)
            elif orders := self._ways(then):
                hinted, plain, product = _of_look(counts)
                look = _Sums(1, hinted, plain, product)
                found = found.plus(look, times * orders)
        return found

    def _count_ways(self, at: tuple[int, ...]) -> int:
        """Orders from `at`, a look, to the end."""
        if at == self._end:
            return 1
        if self._stops(at):
            return 0
        return sum(times * self._ways(then) for then, times in self._blocks(at))

    def _blocks(self, at: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
        """What may have been played at the next look, and in how many ways."""
        played = sum(at)
        size = min(self._rule.next_block(played), self._total) - played
        left = [end - count for end, count in zip(self._end, at, strict=True)]
        found = []
        for more in itertools.product(*(range(min(n, size) + 1) for n in left[:-1])):
            last = size - sum(more)
            if 0 <= last <= left[-1]:
                block = (*more, last)
                ways = math.prod(math.comb(n, k) for n, k in zip(left, block, strict=True))
                found.append((tuple(a + k for a, k in zip(at, block, strict=True)), ways))
        return found

    def _num_complete(self, at: tuple[int, ...]) -> int:
        return sum(n for kind, n in zip(self._kinds, at, strict=True) if None not in kind)

    def _stops(self, at: tuple[int, ...]) -> bool:
        num = self._num_complete(at)
        if num < FEWEST:
            return False
        plain = hinted = 0.0
        for (h, p), n in zip(self._kinds, at, strict=True):
            if h is not None and p is not None:
                plain, hinted = plain + n * success(p), hinted + n * success(h)
        return self._rule.certain(plain, hinted, num, self._rule.planned - sum(at)) is not None
