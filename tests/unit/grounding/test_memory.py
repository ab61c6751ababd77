"""Environment memory: one entry per skeleton, bounded, exemplars from the frontier."""

import json

import pytest

from spade_async.grounding.memory import Memory
from spade_async.types import Environment, RegretClass, RegretEstimate

FRONTIER, MASTERED = RegretClass.FRONTIER, RegretClass.MASTERED


def environment(name, skeleton=None):
    return Environment(
        environment_id=name,
        source=f"source of {name}",
        skeleton=name if skeleton is None else skeleton,
        labels=(("family", "sort"), ("level", "2")),
    )


def estimate(paid, regret_class=FRONTIER):
    return RegretEstimate(
        regret=paid,
        standard_error=0.1,
        paid_regret=paid,
        mean_with_hint=paid,
        mean_no_hint=0.25,
        num_pairs=8,
        regret_class=regret_class,
    )


def sources(memory, n=10, seed=1):
    return [exemplar["source"] for exemplar in memory.exemplars(n, seed)]


def test_the_oldest_estimate_leaves_a_full_memory():
    memory = Memory(2)
    for step, name in enumerate("abc"):
        memory.add(environment(name), estimate(0.5), step)
    assert {e.environment_id for e in memory.replay_candidates()} == {"b", "c"}
    memory.add(environment("b"), estimate(0.5), 3)  # measured again: now "c" is the oldest
    memory.add(environment("d"), estimate(0.5), 4)
    assert {e.environment_id for e in memory.replay_candidates()} == {"b", "d"}


def test_a_near_duplicate_takes_the_place_of_the_older_one():
    memory = Memory(10)
    memory.add(environment("a", "same"), estimate(0.9), 1)
    memory.add(environment("b", "same"), estimate(0.3), 2)
    assert len(memory) == 1
    assert sources(memory) == ["source of b"]


def test_a_mastered_near_duplicate_does_not_push_out_a_frontier_environment():
    memory = Memory(10)
    memory.add(environment("a", "same"), estimate(0.9), 1)
    memory.add(environment("b", "same"), estimate(0.0, MASTERED), 2)
    assert sources(memory) == ["source of a"]


def test_an_environment_measured_again_stands_where_its_newest_estimate_puts_it():
    memory = Memory(10)
    memory.add(environment("a"), estimate(0.9), 1)
    memory.add(environment("a"), estimate(0.0, MASTERED), 2)
    assert memory.replay_candidates() == []


def test_exemplars_are_drawn_among_the_best_of_the_frontier_and_repeat_with_the_seed():
    memory = Memory(100)
    for rank in range(40):
        memory.add(environment(f"e{rank:02}"), estimate(1.0 - rank / 100), rank)
    best = {f"source of e{rank:02}" for rank in range(12)}
    drawn = [sources(memory, 4, seed) for seed in range(50)]
    assert all(len(set(names)) == 4 and set(names) <= best for names in drawn)
    assert set().union(*drawn) == best
    assert sources(memory, 4, 7) == drawn[7]


def test_others_with_positive_regret_fill_up_only_when_the_frontier_is_short():
    memory = Memory(10)
    memory.add(environment("mastered"), estimate(0.05, MASTERED), 1)
    memory.add(environment("worse"), estimate(-0.5, MASTERED), 2)
    memory.add(environment("frontier"), estimate(0.01), 3)
    assert sources(memory, 1) == ["source of frontier"]
    assert sources(memory, 3) == ["source of frontier", "source of mastered"]


def test_an_exemplar_is_what_the_design_task_carries():
    memory = Memory(1)
    memory.add(environment("a"), estimate(0.5), 1)
    assert memory.exemplars(1, 0) == [
        {
            "source": "source of a",
            "labels": {"family": "sort", "level": "2"},
            "regret": 0.5,
            "mean_no_hint": 0.25,
        }
    ]


def test_replays_are_frontier_environments_best_first():
    memory = Memory(10)
    for name, paid, kind in (("a", 0.2, FRONTIER), ("b", 0.6, FRONTIER), ("c", 0.9, MASTERED)):
        memory.add(environment(name), estimate(paid, kind), 1)
    assert [e.environment_id for e in memory.replay_candidates()] == ["b", "a"]


@pytest.mark.parametrize("capacity", [0, 1, 3])
def test_it_never_holds_more_than_its_capacity_and_survives_json(capacity):
    memory, restored = Memory(capacity), Memory(capacity)
    for step in range(6):
        memory.add(environment(f"e{step}"), estimate(step / 10), step)
    assert len(memory) == min(capacity, 6)
    restored.restore(json.loads(json.dumps(memory.state())))
    assert restored.state() == memory.state()
    assert restored.replay_candidates() == memory.replay_candidates()
    assert restored.exemplars(2, 5) == memory.exemplars(2, 5)


def test_an_environment_without_skeleton_is_remembered_by_its_source():
    memory = Memory(5)
    memory.add(environment("a", ""), estimate(0.5), 1)
    memory.add(environment("b", ""), estimate(0.5), 2)
    assert len(memory) == 2
