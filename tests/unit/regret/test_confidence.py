"""The lower bound: closed forms, coverage by exact enumeration and by simulation, its rivals."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_async.regret import Pay, estimate
from spade_async.regret.confidence import lower_bound


def bound(values, confidence=0.9, lowest=-1.0, highest=1.0):
    return lower_bound(values, confidence=confidence, lowest=lowest, highest=highest)


def test_one_value_gives_the_closed_form_of_its_capital():
    # x = 1: K(m) = mean of 1 + c (1 - m) / m over c, whose mean is 1/2; K = 1.25 at m = 2/3.
    assert bound([1.0], confidence=0.2, lowest=0.0) == pytest.approx(2 / 3, abs=1e-9)


def test_the_bound_rises_with_the_number_of_pairs_and_falls_with_the_confidence():
    by_number = [bound([1.0] * n) for n in (2, 4, 8, 16, 64)]
    assert by_number == sorted(by_number)
    assert by_number[-1] > 0.85
    by_confidence = [bound([1.0, 0.0] * 4, confidence=c) for c in (0.5, 0.8, 0.9, 0.99)]
    assert by_confidence == sorted(by_confidence, reverse=True)


def laws():
    """Distributions of a pair's difference, the skewed ones that small samples mislead among."""
    for p in (0.05, 0.5, 0.8, 0.95):
        yield {1.0: p, 0.0: 1.0 - p}
        yield {1.0: p, -1.0: 1.0 - p}
        yield {0.0: p, -1.0: 1.0 - p}


def t_bound(values, quantile):
    mean = sum(values) / len(values)
    var = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return mean - quantile * math.sqrt(var / len(values))


def coverage(law, num, of):
    """Exact chance that the bound is at most the mean, over all counts of `num` pairs."""
    (a, p), (b, q) = law.items()
    mean = a * p + b * q
    return sum(
        math.comb(num, k) * p**k * q ** (num - k)
        for k in range(num + 1)
        if of([a] * k + [b] * (num - k)) <= mean + 1e-12
    )


@pytest.mark.parametrize("num", [2, 4, 8, 16])
def test_the_bound_covers_as_often_as_it_says_for_every_law(num):
    assert min(coverage(law, num, bound) for law in laws()) >= 0.9


def test_why_not_students_t_it_covers_far_less_than_it_says():
    # 8 pairs; 1.415 is the 0.9 quantile of t with 7 degrees of freedom. All pairs alike: no width.
    worst = min(coverage(law, 8, lambda v: t_bound(v, 1.415)) for law in laws())
    assert worst < 0.4


def test_why_not_empirical_bernstein_it_says_nothing_at_eight_pairs():
    # Maurer and Pontil: the term of the range alone, with range 2, n = 8 and d = 0.1.
    assert 7 * 2 * math.log(2 / 0.1) / (3 * 7) > 1.9
    assert bound([1.0] * 8) > 0.25


def test_the_bound_also_covers_when_one_stops_at_the_best_moment():
    # Whoever looks after every pair and stops when the bound is above the truth: 10 % at most.
    rng = random.Random(7)
    law = [1.0, 0.0, -1.0]
    missed = 0
    for _ in range(150):
        values = rng.choices(law, [0.45, 0.35, 0.2], k=16)
        missed += any(bound(values[:n]) > 0.25 for n in range(2, 17, 2))
    assert missed <= 15 + 3 * math.sqrt(150 * 0.1 * 0.9)


values = st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=12)


@given(values, st.randoms(use_true_random=False))
def test_the_bound_is_below_the_mean_within_range_and_free_of_order(found, rng):
    low = bound(found)
    assert -1.0 <= low <= sum(found) / len(found) + 1e-9
    shuffled = list(found)
    rng.shuffle(shuffled)
    assert bound(shuffled) == pytest.approx(low, abs=1e-6)


@pytest.mark.parametrize("bad", [[], [1.5], [0.0, -1.01]])
def test_values_outside_the_range_and_none_at_all_are_errors(bad):
    with pytest.raises(ValueError, match="need one or more within"):
        bound(bad)


def paid(pairs, leak_share=0.0, **pay):
    return estimate(
        pairs, leak_share=leak_share, mastered_at=0.9, out_of_reach_at=0.1, pay=Pay(**pay)
    )


def test_pay_by_the_lower_bound_is_that_bound_and_stays_in_the_record_otherwise():
    pairs = [(1.0, 0.0)] * 6 + [(0.0, 0.0)] * 2
    low = paid(pairs, is_lower=True, confidence=0.9, lowest_return=0.0)
    assert low.paid_regret == pytest.approx(low.lower_bound)
    assert low.lower_bound == pytest.approx(bound([1.0] * 6 + [0.0] * 2))
    mean = paid(pairs, confidence=0.9, lowest_return=0.0)
    assert (mean.paid_regret, mean.lower_bound) == (0.75, low.lower_bound)


def test_a_leak_does_not_make_the_doubt_smaller():
    pairs = [(1.0, 0.0)] * 4
    sound, leaky = paid(pairs, is_lower=True), paid(pairs, is_lower=True, leak_share=1.0)
    assert leaky.paid_regret == pytest.approx(sound.paid_regret - 1.0)


def test_a_return_below_the_stated_lowest_widens_the_range():
    pairs = list(itertools.repeat((1.0, -0.5), 4))
    wide = paid(pairs, lowest_return=0.0).lower_bound
    assert wide == pytest.approx(bound([1.5] * 4, confidence=0.8, lowest=-2.0, highest=2.0))
