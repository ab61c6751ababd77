"""The three alarms: raised once when a limit is passed, over once, silent while all is well."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from spade_async.config.guards import GuardsConfig
from spade_async.config.load import resolve
from spade_async.coordinator.alarm import Alarm, Change
from spade_async.coordinator.forgetting import ALL, Forgetting, Scored, family_tags
from spade_async.coordinator.guards import Guards, guards_off
from spade_async.coordinator.variety import VarietyWindow, entropy

CONFIGS = Path(__file__).parents[3] / "configs"
CONFIG = GuardsConfig(window=8, patience=2, min_skeletons=4)
FAMILIES = ("add", "sub", "sort", "max")


def designs(guards: Guards, shapes: str, family: str | None = None, leak: float = 0.25) -> None:
    """One design per letter; families in turn unless one is given."""
    for index, shape in enumerate(shapes):
        guards.design(shape, {"family": family or FAMILIES[index % 4]}, leak)


def step(guards: Guards, number: int) -> list[tuple[str, str]]:
    guards.figures()
    return [(told.kind, told.text) for told in guards.step(number)]


def instances(solved: int, of: int = 40, family: str = "sort") -> list[Scored]:
    """The first `solved` of the instances of one family are right."""
    groups = ("level 1", f"family {family}")
    return [Scored(f"{family}.{i}", groups, float(i < solved)) for i in range(of)]


def test_an_alarm_needs_patience_to_begin_and_to_end_and_rests_between_its_limits() -> None:
    alarm = Alarm(patience=2)
    seen = [
        alarm.observe(is_beyond=beyond, is_within=within)
        for beyond, within in [
            (True, False), (False, True), (True, False), (True, False), (True, False),
            (False, True), (False, False), (False, True), (False, True), (False, True),
        ]
    ]  # fmt: skip
    assert seen == [None, None, None, Change.RAISED, None, None, None, None, Change.CLEARED, None]


def test_entropy_of_equal_shares_is_the_log_of_their_number() -> None:
    assert entropy([3]) == 0.0
    assert entropy([2, 2, 2, 2]) == pytest.approx(math.log(4))
    # 3/4 and 1/4: log 4 - 3/4 log 3.
    assert entropy([3, 1, 0]) == pytest.approx(math.log(4) - 0.75 * math.log(3))


def test_a_window_has_no_figures_before_it_is_full_and_none_of_what_is_not_known() -> None:
    window = VarietyWindow(4)
    for shape in "aab":
        window.add(shape, None, None)
    assert window.figures() is None
    window.add("c", None, None)
    found = window.figures()
    assert found is not None
    assert found.skeleton_share == 0.5
    # 1/2, 1/4, 1/4: 1.5 bits.
    assert found.effective_skeletons == pytest.approx(2**1.5)
    assert (found.family_share, found.family, found.leak_share) == (None, None, None)


def test_a_designer_that_repeats_itself_is_told_once_and_again_when_it_is_over() -> None:
    guards = Guards(CONFIG)
    designs(guards, "abcdefgh")
    assert step(guards, 1) == []
    designs(guards, "aaaaaaab")
    assert step(guards, 2) == []  # patience
    (told,) = step(guards, 3)
    assert told[0] == "designer_collapse"
    # 7/8 and 1/8: exp(log 8 - 7/8 log 7) = 1.5; the start has 8 that are equal.
    assert "1.5 effective skeletons in the last 8 valid designs (8.0 at the start)" in told[1]
    assert guards.active == ["designer_collapse"]
    assert step(guards, 4) == []
    designs(guards, "abcdefgh")
    assert step(guards, 5) == []
    assert step(guards, 6) == [("guard_cleared", "step 6: designer_collapse of step 3 is over")]
    assert guards.active == []
    assert guards.state()["history"] == [
        {"kind": "designer_collapse", "raised_step": 3, "cleared_step": 6}
    ]


def test_few_skeletons_that_are_more_than_at_the_start_are_no_collapse() -> None:
    guards = Guards(CONFIG)
    designs(guards, "aaaaaaab")
    for number in range(6):
        assert step(guards, number) == []


def test_many_skeletons_of_one_family_are_a_collapse() -> None:
    guards = Guards(CONFIG)
    designs(guards, "abcdefgh")
    step(guards, 1)
    designs(guards, "abcdefgh", family="mod")
    step(guards, 2)
    ((kind, text),) = step(guards, 3)
    assert kind == "designer_collapse"
    assert "100% of them mod (largest family at the start 25%)" in text


def test_hints_that_are_answers_are_told_against_the_start() -> None:
    leaky = Guards(CONFIG)
    designs(leaky, "abcdefgh", leak=0.25)
    step(leaky, 1)
    designs(leaky, "abcdefgh", leak=1.0)
    step(leaky, 2)
    ((kind, text),) = step(leaky, 3)
    assert kind == "hint_leak"
    assert "right on 100% of the seeds" in text
    # A domain of one-character answers leaks much from the first design on: 0.95 is no rise.
    same = Guards(CONFIG)
    designs(same, "abcdefgh", leak=0.85)
    step(same, 1)
    designs(same, "abcdefgh", leak=0.95)
    assert [step(same, number) for number in (2, 3, 4)] == [[], [], []]


def test_leaks_that_are_not_measured_have_no_figure_and_no_alarm() -> None:
    guards = Guards(CONFIG)
    for shape in "abcdefgh":
        guards.design(shape, {}, None)
    found = guards.figures()
    assert found["guards/leak_share"] is None
    assert found["guards/largest_family_share"] is None
    assert found["guards/effective_skeletons"] == pytest.approx(8.0)


def test_alarms_can_be_switched_off_and_figures_stay() -> None:
    guards = Guards(CONFIG.model_copy(update={"alarms": False}))
    designs(guards, "abcdefgh")
    step(guards, 1)
    designs(guards, "aaaaaaaa", leak=1.0)
    assert [step(guards, number) for number in (2, 3, 4)] == [[], [], []]
    assert guards.figures()["guards/leak_share"] == 1.0
    guards.scored(0, instances(40))
    assert guards.scored(10, instances(0)) == (1.0, [])


def test_a_fall_on_the_held_out_set_is_told_with_the_family_that_fell() -> None:
    guards = Guards(CONFIG)
    other = instances(20, family="add")
    assert guards.scored(0, [*instances(36), *other]) == (None, [])
    drop, told = guards.scored(10, [*instances(34), *other])
    assert (drop, told) == (pytest.approx(2 / 80), [])
    drop, (alarm,) = guards.scored(20, [*instances(8), *other])
    assert drop == pytest.approx(28 / 80)
    assert alarm.kind == "forgetting"
    # 28 of 40 fell: 28 / sqrt(28 + 1) = 5.2 errors.
    assert "family sort 0.90 -> 0.20 since step 0 (5.2 standard errors, n=40)" in alarm.text
    assert "family add" not in alarm.text
    assert guards.scored(30, [*instances(9), *other])[1] == []
    (over,) = guards.scored(40, [*instances(36), *other])[1]
    assert (over.kind, over.text) == ("guard_cleared", "step 40: forgetting of step 20 is over")


def test_what_was_learned_and_lost_again_is_forgotten_though_the_start_was_no_better() -> None:
    guards = Guards(CONFIG)
    for number, solved in enumerate((10, 36)):
        assert guards.scored(number, instances(solved))[1] == []
    (alarm,) = guards.scored(2, instances(10))[1]
    assert "all 0.90 -> 0.25 since step 1" in alarm.text


def test_a_fall_within_its_error_is_no_forgetting() -> None:
    forgetting = Forgetting(drop=0.1, errors=3.0)
    forgetting.observe(0, instances(12, of=12))
    falls = forgetting.observe(1, instances(10, of=12))
    # 2 of 12, and its error is sqrt(2 + 1) / 12.
    assert falls[0].drop == pytest.approx(1 / 6)
    assert falls[0].errors == pytest.approx(2 / math.sqrt(3))
    assert forgetting.beyond(falls) == []


def test_chance_alone_seldom_raises_forgetting() -> None:
    """20 runs of 20 evaluations of an unchanged policy, new luck each time: the worst case."""
    rng = random.Random(5)
    raised = 0
    for _ in range(20):
        forgetting = Forgetting(drop=0.1, errors=3.0)
        alarm = False
        for number in range(20):
            scores = [
                Scored(f"{family}.{i}", (f"level {i % 4}", f"family {family}"),
                       float(rng.random() < 0.5))
                for family in range(12) for i in range(16)
            ]  # fmt: skip
            alarm |= bool(forgetting.beyond(forgetting.observe(number, scores)))
        raised += alarm
    assert raised <= 1


def test_evaluations_are_compared_over_what_both_scored_and_few_say_nothing() -> None:
    forgetting = Forgetting(drop=0.1, errors=3.0)
    forgetting.observe(0, instances(40))
    assert forgetting.observe(1, instances(0, of=7)) == []
    assert {f.group for f in forgetting.observe(2, instances(0, of=8))} == {
        ALL, "level 1", "family sort",
    }  # fmt: skip
    assert forgetting.observe(3, []) == []


def test_an_alarm_names_the_guards_that_the_run_has_off() -> None:
    off = guards_off(resolve(CONFIGS / "nano_unguarded.toml"))
    assert off == {
        "designer_collapse": ["designer.novelty_penalty", "designer.plays_per_skeleton"],
        "hint_leak": ["regret.leak_discount"],
        "forgetting": ["agent.pool_share", "learner.kl_to_start"],
    }
    assert not any(guards_off(resolve(CONFIGS / "nano.toml")).values())
    guards = Guards(CONFIG, off)
    guards.scored(0, instances(40))
    (told,) = guards.scored(1, instances(0))[1]
    assert told.text.endswith("; off in this run: agent.pool_share, learner.kl_to_start")


def test_success_by_family_is_a_tag_of_its_own() -> None:
    assert family_tags([*instances(10), *instances(20, family="add")]) == {
        "eval/family/sort/accuracy": 0.25,
        "eval/family/add/accuracy": 0.5,
    }
    assert family_tags([Scored("0.0", ("level 1",), 1.0)]) == {}


def test_state_goes_through_json_and_restores_alarms_windows_and_references() -> None:
    guards = Guards(CONFIG)
    designs(guards, "abcdefgh")
    step(guards, 1)
    designs(guards, "aaaaaaab")
    step(guards, 2)
    guards.scored(0, instances(40))
    again = Guards(CONFIG)
    again.restore(json.loads(json.dumps(guards.state())))
    again.forgetting.restore(json.loads(json.dumps(guards.forgetting.state())))
    assert again.state() == guards.state()
    # The count of steps beyond the limit goes on where it was.
    assert [kind for kind, _ in step(again, 3)] == ["designer_collapse"]
    assert [told.kind for told in again.scored(5, instances(0))[1]] == ["forgetting"]
