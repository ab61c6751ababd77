"""The class decided early: closed forms, exact curtailment, and what it saves in simulation."""

import itertools
import math

import pytest

from benches.pairs.mix import draw, over_phases, play
from spade_async.regret import EarlyClass, estimate
from spade_async.regret.early import PRIOR, classify
from spade_async.types import RegretClass

WON, LOST = 1.0, 0.0


def rule_of(planned=8, block=2, error=0.0):
    return EarlyClass(
        planned=planned, block=block, error=error, mastered_at=0.9, out_of_reach_at=0.1
    )


def test_a_frontier_environment_is_certain_once_neither_end_can_be_reached():
    # One failure without the hint: at most 7 of 8. One success with it: at least 1 of 8.
    assert rule_of().look([(WON, LOST), (WON, WON)]) is RegretClass.FRONTIER
    assert rule_of().look([(WON, WON), (WON, WON)]) is None
    assert rule_of().look([(LOST, LOST), (LOST, LOST)]) is None


def test_missing_pairs_count_as_played_and_are_no_evidence():
    rule = rule_of()
    assert rule.look([(WON, LOST), (None, LOST), (WON, WON), (WON, None)]) is RegretClass.FRONTIER
    # One complete pair is not enough for a standard error, so for nothing.
    assert rule.look([(WON, LOST), (None, WON)]) is None
    assert rule.look([]) is None


def test_after_the_last_pair_there_is_nothing_to_be_certain_of():
    assert rule_of(planned=2).look([(WON, LOST), (WON, LOST)]) is None


def test_the_chance_of_the_full_count_is_that_of_the_prior():
    # Four wins, four to come: all won with chance prod (4 + i + b) / (4 + i + 2 b), about 0.774.
    chance = math.prod((4 + i + PRIOR) / (4 + i + 2 * PRIOR) for i in range(4))
    pairs = [(WON, WON)] * 4
    assert rule_of(error=1.0 - chance + 1e-9).look(pairs) is RegretClass.MASTERED
    assert rule_of(error=1.0 - chance - 1e-9).look(pairs) is None
    # Out of reach: no success with the hint so far, and mastered is impossible.
    assert rule_of(error=1.0 - chance + 1e-9).look([(LOST, LOST)] * 4) is RegretClass.OUT_OF_REACH


@pytest.mark.parametrize(("planned", "block"), [(6, 2), (5, 2), (6, 3)])
def test_with_error_zero_no_class_is_ever_another_one(planned, block):
    rule, stopped = rule_of(planned, block), 0
    for seeds in itertools.product(itertools.product((0.0, 0.5, 1.0), (0.0, 1.0)), repeat=planned):
        played = next(
            (n for n in range(block, planned, block) if rule.look(seeds[:n]) is not None), None
        )
        if played is None:
            continue
        stopped += 1
        full = classify(
            sum(p for _, p in seeds), sum(h for h, _ in seeds), planned,
            mastered_at=0.9, out_of_reach_at=0.1,
        )  # fmt: skip
        assert rule.look(seeds[:played]) is full
    assert stopped > 1000


def test_the_estimate_of_a_stopped_environment_has_the_class_that_stopped_it():
    rule = rule_of(block=4, error=0.3)
    found = estimate(
        [(WON, WON)] * 4, leak_share=0.0, mastered_at=0.9, out_of_reach_at=0.1, early=rule
    )
    assert (found.regret_class, found.is_stopped) == (RegretClass.MASTERED, True)


def test_blocks_end_with_the_full_count():
    rule = rule_of(planned=7, block=3)
    assert [rule.next_block(n) for n in (0, 3, 6)] == [3, 6, 7]
    assert [n for n in range(8) if rule.is_look(n)] == [3, 6, 7]


def test_the_mix_has_the_trends_of_the_paper():
    for phase, learnable, mean in (("early", 0.16, 0.30), ("middle", 0.16, 0.46),
                                   ("late", 0.31, 0.62)):  # fmt: skip
        world = draw(phase, 20_000, 1, 0)
        between = (world.plain >= 0.2) & (world.plain <= 0.8)
        assert between.mean() == pytest.approx(learnable, abs=0.01)
        assert world.plain.mean() == pytest.approx(mean, abs=0.01)


def test_thirty_percent_fewer_episodes_at_the_very_same_classes():
    found = over_phases(8, 2, 0.0, 2000)
    assert found["agreement"] == 1.0
    assert found["accuracy"] == found["accuracy_full"]
    assert found["saved"] > 0.28  # 30 % over 60,000 environments: docs/regret.md


@pytest.mark.parametrize(
    ("planned", "block", "error", "saved"), [(8, 2, 0.1, 0.40), (16, 4, 0.05, 0.48)]
)
def test_more_is_saved_at_equal_accuracy_when_ends_may_be_sure_enough(planned, block, error, saved):
    found = over_phases(planned, block, error, 2000)
    assert found["saved"] > saved
    assert found["accuracy"] > found["accuracy_full"] - 0.01


def test_what_is_stopped_is_an_environment_of_each_kind():
    found = play(draw("late", 2000, 16, 3), rule_of(16, 4, 0.05))
    assert min(found["saved_of"].values()) > 0.3
