"""The schedule's answers in small cases worked out by hand."""

import pytest

from spade_async.coordinator.schedule import OpenGroup, Schedule, Take, Wait, WaitReason
from spade_async.errors import ConfigError
from spade_async.types import Role


def make(agent_bound=1, designer_bound=1, agent_quota=4, designer_quota=1, group_size=2, pool=0.0):
    return Schedule(
        agent_bound=agent_bound,
        designer_bound=designer_bound,
        agent_quota=agent_quota,
        designer_quota=designer_quota,
        group_size=group_size,
        pool_share=pool,
    )


def loaded(**keys):
    schedule = make(**keys)
    schedule.weights_loaded(0)
    return schedule


def play_out(schedule, design, plays):
    for play in plays:
        schedule.start_play(design, play)
        schedule.ready(play)
    schedule.ready(design)


def test_nothing_is_admitted_before_a_generator_has_loaded_weights():
    schedule = make()
    assert not schedule.can_admit_design()
    assert not schedule.can_admit_pool()
    schedule.weights_loaded(0)
    assert schedule.admit_design("d") == 0


def test_a_published_version_opens_admission_only_when_it_is_loaded():
    schedule = loaded(agent_bound=0, designer_bound=0, agent_quota=2)
    schedule.admit_design("d0")
    play_out(schedule, "d0", ["a", "b"])
    assert schedule.take() == Take(["d0"], ["a", "b"])
    assert not schedule.can_admit_design(), "the batch in training holds the step's places"
    schedule.step_finished(1)
    assert not schedule.can_admit_design(), "version 1 exists, but nobody has loaded it"
    schedule.weights_loaded(1)
    assert schedule.admit_design("d1") == 1


def test_a_design_group_reserves_its_places_and_gives_back_those_of_invalid_designs():
    # (1 + 1) * 4 places, 2 a group: four groups fit by places, two by the designer's own bound.
    schedule = loaded(designer_bound=8)
    for name in "abcd":
        schedule.admit_design(name)
    assert not schedule.can_admit_design()
    schedule.release("a", 2)
    assert schedule.can_admit_design()
    with pytest.raises(ValueError, match="holds 0 agent places"):
        schedule.release("a")


def test_places_not_used_by_the_step_in_training_are_gone():
    schedule = loaded(agent_quota=2, designer_bound=3)
    schedule.admit_design("d0")
    for play in ("a", "b"):
        schedule.start_play("d0", play)
    schedule.drop("a")
    schedule.ready("b")
    schedule.ready("d0")
    schedule.is_open = False
    assert schedule.take() == Take(["d0"], ["b"])
    schedule.is_open = True
    schedule.admit_design("d1")
    schedule.admit_design("d2")
    started = 0
    for design in ("d1", "d2"):
        while schedule.can_start_play(design):
            schedule.start_play(design, f"play{started}")
            started += 1
    # Four places are reserved, but birth 0 has only the two places of step 1 left: the place that
    # step 0 did not use is not lent to anybody.
    assert started == 2
    schedule.step_finished(1)
    assert not schedule.can_start_play("d2")
    schedule.weights_loaded(1)
    assert schedule.can_start_play("d2")


def test_a_step_waits_while_work_on_its_way_can_fill_the_quota_and_not_longer():
    schedule = loaded(agent_quota=2, designer_bound=3)
    schedule.pool_has_work = False
    schedule.admit_design("d0")
    schedule.start_play("d0", "a")
    schedule.start_play("d0", "b")
    schedule.ready("a")
    schedule.is_open = False
    assert schedule.take() == Wait(WaitReason.FILLING, Role.AGENT, "b")
    schedule.drop("b")
    assert schedule.take() == Wait(WaitReason.FILLING, Role.DESIGNER, "d0")
    schedule.ready("d0")
    assert schedule.take() == Take(["d0"], ["a"])


def test_a_step_waits_for_the_named_group_whose_deadline_it_would_break():
    schedule = loaded(agent_bound=0, designer_bound=1, agent_quota=2, designer_quota=1)
    schedule.pool_has_work = False
    schedule.admit_design("d0")
    schedule.start_play("d0", "slow")
    schedule.start_play("d0", "fast")
    schedule.ready("fast")
    assert schedule.take() == Wait(WaitReason.DEADLINE, Role.AGENT, "slow")
    schedule.ready("slow")
    schedule.ready("d0")
    assert isinstance(schedule.take(), Take)


def test_a_step_goes_without_designs_when_the_agents_places_are_full_of_ready_groups():
    # Agent places 2 * 2; the group being written holds 2, two plays of another are ready.
    schedule = loaded(agent_quota=2, designer_quota=2, designer_bound=3)
    schedule.pool_has_work = False
    schedule.admit_design("d0")
    schedule.admit_design("d1")
    for play in ("a", "b"):
        schedule.start_play("d0", play)
        schedule.ready(play)
    # d0 is held back by its hinted episodes, d1 is still being written.
    assert schedule.take() == Take([], ["a", "b"])


def test_a_step_with_the_agents_quota_ready_does_not_wait_for_designs_that_are_not_due():
    schedule = loaded(agent_quota=2, designer_quota=2, designer_bound=3, agent_bound=3)
    schedule.admit_design("d0")
    schedule.admit_design("d1")
    schedule.admit_design("d2")
    play_out(schedule, "d0", ["a", "b"])
    schedule.start_play("d1", "c")
    assert schedule.take() == Take(["d0"], ["a", "b"])


def test_a_training_batch_is_named_as_the_reason_to_wait():
    schedule = loaded(agent_bound=0, designer_bound=0, agent_quota=2)
    schedule.admit_design("d")
    play_out(schedule, "d", ["a", "b"])
    schedule.take()
    assert schedule.take() == Wait(WaitReason.TRAINING)
    with pytest.raises(ValueError, match="step_finished"):
        schedule.step_finished(2)


def test_with_nothing_complete_the_oldest_group_is_named():
    schedule = loaded()
    assert schedule.take() == Wait(WaitReason.NOTHING_READY, Role.AGENT, None)
    schedule.admit_design("d")
    assert schedule.take() == Wait(WaitReason.NOTHING_READY, Role.DESIGNER, "d")


def test_pool_plays_keep_to_their_share_while_designs_can_deliver():
    # Places 2 * 8, share 2 * 2.
    schedule = loaded(agent_quota=8, designer_quota=2, designer_bound=3, group_size=4, pool=0.25)
    num_plays = 0
    while schedule.can_admit_pool():
        schedule.admit_pool(f"m{num_plays}")
        num_plays += 1
    assert num_plays == 4


def test_pool_plays_go_beyond_their_share_when_the_designers_line_is_full():
    # One designer group fits; it holds 4 of 16 places and one more group's worth stays free.
    schedule = loaded(agent_quota=8, designer_quota=1, designer_bound=0, group_size=4, pool=0.25)
    schedule.admit_design("d")
    num_plays = 0
    while schedule.can_admit_pool():
        schedule.admit_pool(f"m{num_plays}")
        num_plays += 1
    assert num_plays == 16 - 4 - 4


def test_designs_leave_the_pool_its_share_of_places():
    # Places 2 * 8, of which the pool keeps 4: three groups of 4 designs fit, not four.
    schedule = loaded(agent_quota=8, designer_quota=9, group_size=4, pool=0.25)
    num_groups = 0
    while schedule.can_admit_design():
        schedule.admit_design(f"d{num_groups}")
        num_groups += 1
    assert num_groups == 3


def test_pool_plays_do_not_take_the_places_that_designs_wait_to_start_in():
    # While step 0 trains, 4 of the 8 places lie before birth 0's deadline and designs reserve 4.
    schedule = loaded(agent_quota=4, designer_quota=2, designer_bound=1, pool=0.5)
    schedule.admit_pool("m0")
    schedule.admit_design("d0")
    schedule.admit_design("d1")
    schedule.ready("m0")
    schedule.is_open = False
    schedule.pool_has_work = False
    schedule.release("d0", 2)
    schedule.ready("d0")
    assert schedule.take() == Wait(WaitReason.FILLING, Role.DESIGNER, "d1")
    schedule.release("d1", 2)
    schedule.ready("d1")
    assert schedule.take() == Take(["d0", "d1"], ["m0"])
    schedule.is_open = True
    schedule.admit_design("d2")
    schedule.admit_design("d3")
    assert not schedule.can_admit_pool()
    schedule.release("d3")
    assert schedule.can_admit_pool()


def test_a_closed_schedule_finishes_what_is_outstanding_and_admits_nothing():
    schedule = loaded(designer_quota=2)
    schedule.admit_design("d")
    schedule.is_open = False
    assert not schedule.can_admit_design()
    assert not schedule.can_admit_pool()
    play_out(schedule, "d", ["a", "b"])
    assert schedule.take() == Take(["d"], ["a", "b"])


def test_age_counts_steps_and_the_oldest_group_is_named():
    schedule = loaded(agent_bound=2, designer_bound=2, agent_quota=2)
    schedule.admit_design("old")
    schedule.admit_design("new")
    play_out(schedule, "new", ["a", "b"])
    assert schedule.take() == Take(["new"], ["a", "b"])
    assert schedule.age("a") == 0
    schedule.step_finished(1)
    assert schedule.age("old") == 1
    assert schedule.oldest() == ("old", Role.DESIGNER, 1)


def test_a_group_over_its_bound_after_a_rollback_is_reported_and_left_out():
    schedule = make(agent_bound=1, designer_bound=1)
    rows = [
        OpenGroup("stale", Role.AGENT, 3, is_ready=True),
        OpenGroup("fresh", Role.AGENT, 4, is_ready=True),
    ]
    assert schedule.restore(5, rows) == ["stale"]
    assert schedule.birth("fresh") == 4
    with pytest.raises(KeyError):
        schedule.birth("stale")


def test_replayed_steps_come_first_and_hold_their_places():
    schedule = make(agent_bound=0, designer_bound=0, agent_quota=2)
    schedule.restore(5, [], num_replays=1)
    schedule.weights_loaded(5)
    assert not schedule.can_admit_design(), "step 5 is taken by the replay"
    assert schedule.take() == Wait(WaitReason.TRAINING)
    schedule.begin_replay()
    schedule.step_finished(6)
    schedule.weights_loaded(6)
    assert schedule.can_admit_design()
    with pytest.raises(ValueError, match="begin_replay"):
        schedule.begin_replay()


def test_a_design_group_that_never_fits_is_refused_with_both_numbers():
    with pytest.raises(ConfigError, match=r"designer\.group_size=8 does not fit the 6 places"):
        make(agent_bound=1, agent_quota=4, group_size=8, pool=0.25)


def test_the_same_name_is_not_admitted_twice():
    schedule = loaded(designer_quota=2)
    schedule.admit_design("d")
    with pytest.raises(ValueError, match="already"):
        schedule.admit_design("d")


def test_what_is_not_allowed_is_refused():
    schedule = make()
    with pytest.raises(ValueError, match="admit_design"):
        schedule.admit_design("d")
    with pytest.raises(ValueError, match="newest version is 0"):
        schedule.weights_loaded(1)
