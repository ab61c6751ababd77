"""The deadline lines against brute force: a take is refused exactly when no schedule is left."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from spade_async.coordinator.schedule_lane import Group, Lane
from spade_async.types import Role


def can_be_trained_in_time(births, *, bound, quota, first_step):
    """Whether each group gets a step in first_step .. birth + bound, quota per step (search)."""

    @cache
    def place(index, used):
        if index == len(births):
            return True
        for step in range(first_step, births[index] + bound + 1):
            slot = step - first_step
            if used[slot] < quota:
                grown = (*used[:slot], used[slot] + 1, *used[slot + 1 :])
                if place(index + 1, grown):
                    return True
        return False

    longest = max((b + bound - first_step + 1 for b in births), default=0)
    return place(0, (0,) * max(longest, 0))


lanes = st.fixed_dictionaries(
    {
        "bound": st.integers(0, 3),
        "quota": st.integers(1, 2),
        "step": st.integers(0, 4),
        "groups": st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=7),
    }
)


@settings(max_examples=400, deadline=None)
@given(lanes)
def test_a_line_fails_exactly_when_what_is_left_cannot_meet_its_deadlines(case):
    births = sorted(min(birth, case["step"]) for birth, _ in case["groups"])
    lane = Lane(Role.AGENT, bound=case["bound"], quota=case["quota"])
    for number, (birth, (_, is_ready)) in enumerate(zip(births, case["groups"], strict=True)):
        lane.add(Group(str(number), birth, is_ready=is_ready))
    taken = {group.group_id for group in lane.oldest_ready()}
    left = [g.birth for g in lane.groups.values() if g.group_id not in taken]
    feasible = can_be_trained_in_time(
        tuple(left), bound=case["bound"], quota=case["quota"], first_step=case["step"] + 1
    )
    assert (lane.failing_line(case["step"]) is None) == feasible


@settings(max_examples=300, deadline=None)
@given(lanes)
def test_room_is_exactly_how_many_groups_of_the_newest_birth_still_fit(case):
    bound, quota, step = case["bound"], case["quota"], case["step"]
    births = tuple(sorted(min(birth, step) for birth, _ in case["groups"]))
    if not can_be_trained_in_time(births, bound=bound, quota=quota, first_step=step):
        return
    lane = Lane(Role.AGENT, bound=bound, quota=quota)
    for number, birth in enumerate(births):
        lane.add(Group(str(number), birth))
    room = lane.room(step, step)
    assert can_be_trained_in_time(
        (*births, *[step] * room), bound=bound, quota=quota, first_step=step
    )
    assert not can_be_trained_in_time(
        (*births, *[step] * (room + 1)), bound=bound, quota=quota, first_step=step
    )


def test_a_take_is_oldest_first_and_at_most_the_quota():
    lane = Lane(Role.AGENT, bound=4, quota=2)
    for name, birth, is_ready in (("a", 0, False), ("b", 0, True), ("c", 1, True), ("d", 2, True)):
        lane.add(Group(name, birth, is_ready=is_ready))
    assert [group.group_id for group in lane.oldest_ready()] == ["b", "c"]
    assert lane.oldest_running().group_id == "a"
