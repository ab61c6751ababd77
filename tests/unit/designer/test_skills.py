"""Nine skills, the reference's rotation (1.2, 1.3), and names that are almost right."""

from __future__ import annotations

import pytest

from spade_async.designer import games
from spade_async.designer.skills import (
    GAME_SKILLS,
    Rotation,
    Skill,
    chosen_skills,
    domain_skills,
    draw_ideas,
)
from spade_async.errors import ConfigError
from spade_async.nano import domain as nano

SIX = tuple(Skill(name) for name in "abcdef")


def names(rotation: Rotation, groups: range) -> str:
    return "".join(rotation.skill(group).name for group in groups)


def reference(rollout: int, slot: int, skills: str, k: int, interval: int) -> str:
    """The reference's rule, from its description: active skills by epoch, slots in turn."""
    n = len(skills)
    if k <= 0 or k >= n or interval <= 0:
        active = skills
    else:
        start = (rollout // interval * k) % n
        active = "".join(skills[(start + i) % n] for i in range(k))
    return active[slot % len(active)]


@pytest.mark.parametrize(
    ("k", "games_per_window"), [(3, 24), (4, 8), (1, 5), (5, 7), (0, 9), (6, 4)]
)
def test_the_rotation_is_the_reference_s(k: int, games_per_window: int) -> None:
    rotation = Rotation(SIX, k, games_per_window)
    for epoch in range(8):
        for slot in range(games_per_window):
            # A window of ours is what the reference makes at one regeneration.
            wanted = reference(epoch * 4, slot, "abcdef", k, 4)
            assert rotation.skill(epoch * games_per_window + slot).name == wanted


def test_two_halves_alternate_and_each_skill_gets_its_share() -> None:
    rotation = Rotation(SIX, 3, 24)
    assert names(rotation, range(24)) == "abc" * 8
    assert names(rotation, range(24, 48)) == "def" * 8
    assert names(rotation, range(48, 72)) == "abc" * 8


def test_a_window_wraps_around() -> None:
    rotation = Rotation(SIX, 4, 4)
    assert names(rotation, range(12)) == "abcd" + "efab" + "cdef"


def test_without_windows_all_skills_take_turns() -> None:
    assert names(Rotation(SIX), range(13)) == "abcdefabcdefa"


def test_there_are_nine_skills_each_with_a_description_and_ideas() -> None:
    assert len({skill.name for skill in GAME_SKILLS}) == 9
    for skill in GAME_SKILLS:
        assert skill.description
        assert len(set(skill.ideas)) >= 4
    assert domain_skills(games) is GAME_SKILLS


def test_underscores_and_case_do_not_matter() -> None:
    chosen = chosen_skills(["Logical_Deduction", "memory recall", " Optimization "], GAME_SKILLS)
    assert [s.name for s in chosen] == ["Logical Deduction", "Memory Recall", "Optimization"]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("Logical_Deducton", ("did you mean 'Logical Deduction'?", "Spatial Reasoning")),
        ("Juggling", ("designer.skills='Juggling'", "Pattern Recognition")),
    ],
)
def test_a_skill_that_does_not_exist_is_one_line_with_advice(
    name: str, parts: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen_skills([name], GAME_SKILLS)
    for part in parts:
        assert part in str(caught.value)


def test_a_skill_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="'Memory Recall' is named twice"):
        chosen_skills(["Memory Recall", "memory_recall"], GAME_SKILLS)


def test_a_domain_has_skills_of_its_own_or_takes_any() -> None:
    known = domain_skills(nano)
    assert known is not None
    assert [s.name for s in known] == ["Mathematical Reasoning"]
    assert [s.name for s in chosen_skills(["Tool_Selection"], None)] == ["Tool Selection"]


def test_ideas_are_drawn_by_the_seed_alone() -> None:
    skill = GAME_SKILLS[0]
    drawn = {draw_ideas(skill, 3, seed) for seed in range(50)}
    assert len(drawn) > 4
    assert all(len(set(ideas)) == 3 and set(ideas) <= set(skill.ideas) for ideas in drawn)
    assert draw_ideas(skill, 3, 7) == draw_ideas(skill, 3, 7)
    assert draw_ideas(Skill("x"), 3, 7) == ()
