"""What a design is paid, and how repeats of a shape are counted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_async.designer.novelty import SkeletonQuota, SkeletonWindow
from spade_async.designer.reward import PayRule, Unplayed, design_reward
from spade_async.designer.rewards.facts import Raw, missing
from spade_async.types import MissingRegret, Outcome, Rejection, Stage

RULE = PayRule(
    novelty_penalty=0.2, invalid=-1.0, timed_out=-0.75, repaired=-0.5, repair_penalty=0.125
)


def pay(verdict, share=0.0, repaired=()):
    return design_reward(verdict, RULE, skeleton_share=share, repaired=repaired)


def paid(regret):
    return Raw(value=regret)


def test_a_played_design_is_paid_its_regret_less_the_share_of_its_skeleton():
    assert pay(paid(0.5)) == 0.5
    assert pay(paid(0.5), share=0.25) == pytest.approx(0.45)


def test_a_negative_regret_is_not_floored():
    assert pay(paid(-0.5)) == -0.5


def test_a_rejected_design_gets_the_bounded_signal_whatever_its_shape():
    rejection = Rejection(Stage.LOAD, "SyntaxError")
    assert pay(rejection) == pay(rejection, share=1.0) == -1.0


def test_a_draft_that_hung_has_a_pay_of_its_own():
    assert pay(Rejection(Stage.STEP, "step: wall", Outcome.TIMED_OUT)) == -0.75
    assert pay(Rejection(Stage.STEP, "KeyError", Outcome.EXCEPTION)) == -1.0


def test_a_repaired_text_costs_a_little_and_an_invalid_one_earns_nothing():
    assert pay(paid(0.5), repaired=("fences", "braces")) == 0.375
    assert pay(paid(1.0), repaired=("turn",)) == pay(paid(-1.0), repaired=("turn",)) == -0.5


def test_what_is_missing_or_masked_is_no_number():
    assert pay(missing("no return of its environment")) is None
    assert pay(Raw(value=-0.25, is_masked=True)) is None
    assert pay(missing("no return"), repaired=("turn",)) is None


def test_the_reference_pays_nothing_for_a_rejected_draft():
    rule = PayRule(novelty_penalty=0.0, invalid=None)
    rejection = Rejection(Stage.LOAD, "SyntaxError")
    assert design_reward(rejection, rule, skeleton_share=0.0) is None


def test_a_design_over_the_quota_is_paid_as_no_regret_and_the_full_penalty():
    assert pay(Unplayed("4th of its skeleton"), share=0.1) == -0.2


def test_a_missing_regret_is_missing_and_never_a_number():
    assert pay(MissingRegret("no pair is complete")) is None


def test_the_share_counts_the_last_designs_over_the_window_size():
    window = SkeletonWindow(4)
    assert window.share("a") == 0.0
    for skeleton in "aab":
        window.add(skeleton)
    assert (window.share("a"), window.share("b")) == (0.5, 0.25)
    window.add("b")
    window.add("c")  # the first "a" leaves
    assert (window.share("a"), window.share("b"), window.share("c")) == (0.25, 0.5, 0.25)


@given(st.integers(1, 6), st.lists(st.sampled_from("abc"), max_size=30))
def test_the_window_equals_a_count_over_the_tail_and_survives_json(size, skeletons):
    window, restored = SkeletonWindow(size), SkeletonWindow(size)
    for skeleton in skeletons:
        window.add(skeleton)
    restored.restore(json.loads(json.dumps(window.state())))
    for skeleton in "abc":
        expected = skeletons[-size:].count(skeleton) / size
        assert window.share(skeleton) == restored.share(skeleton) == expected


@given(
    st.integers(1, 3), st.integers(1, 8), st.lists(st.sampled_from(["a", "b", None]), max_size=40)
)
def test_no_stretch_of_designs_plays_a_skeleton_more_often_than_allowed(limit, window, designs):
    quota = SkeletonQuota(limit=limit, window=window)
    played = []
    for skeleton in designs:
        if skeleton is None:
            quota.skip()
            played.append(None)
        else:
            played.append(skeleton if quota.admit(skeleton) else None)
    for start in range(len(played)):
        for skeleton in "ab":
            assert played[start : start + window].count(skeleton) <= limit
    # And it refuses only when it must: the window before a refused one is full of its kind.
    for index, (wanted, got) in enumerate(zip(designs, played, strict=True)):
        if wanted is not None and got is None:
            before = played[max(0, index - window + 1) : index]
            assert before.count(wanted) == limit


def test_the_quota_goes_on_where_it_was_after_a_trip_through_json():
    quota = SkeletonQuota(limit=1, window=3)
    assert quota.admit("a")
    restored = SkeletonQuota(limit=1, window=3)
    restored.restore(json.loads(json.dumps(quota.state())))
    assert not restored.admit("a")
    assert restored.admit("b")
    assert restored.admit("a"), "the first is three designs back"


@pytest.mark.parametrize(
    "make", [lambda: SkeletonWindow(0), lambda: SkeletonQuota(limit=-1, window=0)]
)
def test_a_size_that_means_nothing_is_refused(make):
    with pytest.raises(ValueError, match="at least"):
        make()


def test_a_quota_of_zero_lets_every_design_be_played():
    quota = SkeletonQuota(limit=0, window=20)
    assert [quota.admit("a") for _ in range(50)] == [True] * 50
