"""The estimate under early stopping: unbiased, by exact enumeration of every course of play."""

import itertools
import math
from collections import Counter

import pytest

from spade_async.regret import EarlyClass, estimate
from spade_async.regret import stopped as stopped_module
from spade_async.regret.stopped import unbiased_means


def rule_of(planned, block, error, mastered_at=0.9, out_of_reach_at=0.1):
    return EarlyClass(
        planned=planned, block=block, error=error, mastered_at=mastered_at,
        out_of_reach_at=out_of_reach_at,
    )  # fmt: skip


def play(seeds, rule):
    """The first pairs of `seeds` that are played under the rule."""
    played = 0
    while played < rule.planned:
        played = rule.next_block(played)
        if rule.look(seeds[:played]) is not None:
            break
    return seeds[:played]


def outcomes(law, num):
    """Every sequence of pairs with its probability."""
    for seeds in itertools.product(law, repeat=num):
        yield list(seeds), math.prod(law[pair] for pair in seeds)


def courses(law, rule):
    """What can have been played, whatever its order, with its probability."""
    found = Counter()
    for seeds, p in outcomes(law, rule.planned):
        found[tuple(sorted(play(seeds, rule), key=str))] += p
    return found.items()


LAWS = {
    "teaches": {(1.0, 0.0): 0.45, (1.0, 1.0): 0.3, (0.0, 0.0): 0.2, (0.0, 1.0): 0.05},
    "nearly mastered": {(1.0, 1.0): 0.85, (1.0, 0.0): 0.1, (0.0, 1.0): 0.05},
    "nearly out of reach": {(0.0, 0.0): 0.8, (1.0, 0.0): 0.2},
    "returns in between": {(0.5, -1.0): 0.5, (1.0, 1.0): 0.3, (0.25, 0.5): 0.2},
    "with faults": {(1.0, 0.0): 0.4, (0.0, 0.0): 0.3, (1.0, None): 0.1, (None, None): 0.2},
}
RULES = [
    rule_of(6, 2, 0.0), rule_of(6, 2, 0.12), rule_of(6, 3, 0.05), rule_of(5, 2, 0.05, 0.75)
]  # fmt: skip


def truth(law):
    """Mean difference of the complete pairs."""
    complete = {pair: p for pair, p in law.items() if None not in pair}
    return sum((h - q) * p for (h, q), p in complete.items()) / sum(complete.values())


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("name", LAWS)
def test_the_regret_of_stopped_pairs_is_unbiased_and_so_is_its_variance(name, rule):
    law = LAWS[name]
    mean = second = variance = naive = chance = 0.0
    lengths = set()
    for played, p in courses(law, rule):
        lengths.add(len(played))
        complete = [pair for pair in played if None not in pair]
        if len(complete) < 2:
            continue  # No standard error; conditioned away, it does not depend on returns.
        found = unbiased_means(played, rule)
        regret = found.hinted - found.plain
        chance += p
        mean += p * regret
        second += p * regret**2
        variance += p * signed_variance(played, rule)
        naive += p * sum(h - q for h, q in complete) / len(complete)
    assert len(lengths) > 1, "always as many pairs: nothing was tested"
    assert mean / chance == pytest.approx(truth(law), abs=1e-12)
    assert variance / chance == pytest.approx(second / chance - truth(law) ** 2, abs=1e-12)
    if name == "teaches":
        # What the estimator is for: the plain mean of what was played is off.
        assert abs(naive / chance - truth(law)) > 0.01


def signed_variance(played, rule):
    """The estimate of the variance before it is cut at 0."""
    kinds = Counter(stopped_module._without_half(pair) for pair in played)
    sums = stopped_module._Orders(rule, kinds).sums()
    regret = (sums.hinted - sums.plain) / sums.orders
    return regret**2 - sums.product / sums.orders


def test_means_of_each_arm_are_unbiased_too():
    law, rule = LAWS["teaches"], rule_of(6, 2, 0.0)
    found = [(unbiased_means(play(seeds, rule), rule), p) for seeds, p in outcomes(law, 6)]
    assert sum(m.hinted * p for m, p in found) == pytest.approx(0.75, abs=1e-12)
    assert sum(m.plain * p for m, p in found) == pytest.approx(0.35, abs=1e-12)


def test_the_estimate_wastes_nothing_it_beats_the_first_look_alone():
    law, rule = LAWS["nearly mastered"], rule_of(6, 2, 0.0)
    of_all = of_first = 0.0
    for seeds, p in outcomes(law, 6):
        means = unbiased_means(play(seeds, rule), rule)
        of_all += p * (means.hinted - means.plain - truth(law)) ** 2
        of_first += p * (sum(h - q for h, q in seeds[:2]) / 2 - truth(law)) ** 2
    assert of_all < 0.85 * of_first


def test_with_too_many_multisets_the_first_look_is_the_estimate_and_unbiased(monkeypatch):
    monkeypatch.setattr(stopped_module, "MOST_STATES", 20)
    law, rule = LAWS["teaches"], rule_of(6, 2, 0.0)
    found = [(unbiased_means(play(seeds, rule), rule), p) for seeds, p in outcomes(law, 6)]
    assert sum((m.hinted - m.plain) * p for m, p in found) == pytest.approx(0.4, abs=1e-12)


def test_where_no_order_would_have_stopped_it_is_the_plain_mean_and_error():
    # Success without the hint can still be 3/4 and 1/2 after any two of these: nothing is certain.
    pairs = [(1.0, 0.0), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0)]
    rule = rule_of(4, 2, 0.0, mastered_at=0.75, out_of_reach_at=0.7)
    assert [rule.look([a, b]) for a, b in itertools.combinations(pairs, 2)] == [None] * 6
    plain, ruled = unbiased_means(pairs, None), unbiased_means(pairs, rule)
    assert (ruled.hinted, ruled.plain) == pytest.approx((plain.hinted, plain.plain))
    assert ruled.standard_error == pytest.approx(plain.standard_error)


def test_the_record_says_that_it_was_stopped_and_by_what():
    rule = rule_of(8, 2, 0.0)
    found = estimate(
        [(1.0, 0.0), (1.0, 0.0)], leak_share=0.0, mastered_at=0.9, out_of_reach_at=0.1, early=rule
    )
    assert (found.regret, found.num_pairs, found.num_played) == (1.0, 2, 2)
    assert found.is_stopped
    assert found.regret_class == "frontier"
