"""Environment memory over its table: one entry a neighbourhood, bounded, exemplars with reasons."""

import json

import numpy as np
import pytest

from spade_async.grounding.memory import Memory
from spade_async.grounding.reference_memory import ReferenceMemory
from spade_async.grounding.signature import minhash
from spade_async.ledger import Ledger
from spade_async.types import Environment, RegretClass, RegretEstimate

FRONTIER, MASTERED = RegretClass.FRONTIER, RegretClass.MASTERED


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "l.sqlite", create=True, config_digest="c") as ledger:
        yield ledger


def environment(name, skeleton=None):
    return Environment(
        environment_id=name,
        source=f"source of {name}",
        skeleton=name if skeleton is None else skeleton,
        labels=(("family", "sort"), ("level", "2")),
    )


def estimate(paid, regret_class=FRONTIER, no_hint=0.25):
    return RegretEstimate(
        regret=paid,
        standard_error=0.1,
        paid_regret=paid,
        mean_with_hint=paid,
        mean_no_hint=no_hint,
        num_pairs=8,
        regret_class=regret_class,
    )


def features(change=0, seed=5):
    """Signature of 400 features of which `change` are its own."""
    rng = np.random.default_rng(seed)
    some = rng.integers(0, 2**32, 800, dtype=np.uint32)
    return minhash(np.concatenate([some[change:400], some[400 : 400 + change]]))


def add(ledger, memory, name, found, step=0, *, skeleton=None, win_rate=0.5, **more):
    it = environment(name, skeleton)
    with ledger.transaction():
        ledger.add_environment(it, None, None, step)
        memory.add(it, found, step, win_rate=win_rate, **more)


def sources(memory, n=10, seed=1, skill="", kind="inspire"):
    return [x["source"] for x in memory.exemplars(n, seed, skill) if x["kind"] == kind]


def replayed(memory, num=100):
    return {e.environment_id for e in map(memory.replay, range(num)) if e is not None}


def test_the_oldest_estimate_leaves_a_full_memory(ledger):
    memory = Memory(ledger, 2)
    for step, name in enumerate("abc"):
        add(ledger, memory, name, estimate(0.5), step)
    assert replayed(memory) == {"b", "c"}
    add(ledger, memory, "b", estimate(0.5), 3)  # measured again: now "c" is the oldest
    add(ledger, memory, "d", estimate(0.5), 4)
    assert replayed(memory) == {"b", "d"}


@pytest.mark.parametrize("how", ["skeleton", "tree"])
def test_a_near_copy_takes_the_place_of_the_older_one_and_is_counted(ledger, how):
    memory = Memory(ledger, 10, near_duplicate=0.9)
    # 400 features, 5 of them changed: 395 / 405 = 0.975 alike.
    one, two = (None, None) if how == "skeleton" else (features(), features(5))
    add(ledger, memory, "a", estimate(0.9), 1, skeleton="x", signature=one)
    shape = "x" if how == "skeleton" else "y"
    add(ledger, memory, "b", estimate(0.3), 2, skeleton=shape, signature=two)
    assert len(memory) == 1
    assert sources(memory) == ["source of b"]
    assert memory.metrics() == {"grounding/memory_entries": 1.0, "grounding/near_duplicates": 1.0}


def test_programs_that_are_less_alike_have_places_of_their_own(ledger):
    memory = Memory(ledger, 10, near_duplicate=0.9)
    add(ledger, memory, "a", estimate(0.9), 1, signature=features())
    add(ledger, memory, "b", estimate(0.3), 2, signature=features(100))  # 300 / 500 = 0.6
    assert len(memory) == 2
    exact = Memory(ledger, 10, near_duplicate=1.0)
    add(ledger, exact, "c", estimate(0.3), 2, signature=features(1))
    assert len(exact) == 3, "at 1.0 only one skeleton counts as one"


def test_a_mastered_near_copy_does_not_push_out_a_frontier_environment(ledger):
    memory = Memory(ledger, 10)
    add(ledger, memory, "a", estimate(0.9), 1, skeleton="same")
    add(ledger, memory, "b", estimate(0.0, MASTERED), 2, skeleton="same")
    assert sources(memory) == ["source of a"]
    assert ledger.entry_of("a", "").num_alike == 1


def test_what_was_copied_is_told_with_how_often_and_whom(ledger):
    memory = Memory(ledger, 10)
    for step in range(4):
        add(ledger, memory, f"e{step}", estimate(0.0, MASTERED, 0.97), step, skeleton="same")
    (shown,) = memory.exemplars(2, 1)
    assert shown["kind"] == "avoid"
    assert shown["source"] == "source of e3"
    assert shown["reason"] == (
        "it is solved without a hint (mean return 0.97) and teaches nothing more; "
        "3 later programs were too like it (environment e3)"
    )


def test_an_environment_measured_again_stands_where_its_newest_estimate_puts_it(ledger):
    memory = Memory(ledger, 10)
    add(ledger, memory, "a", estimate(0.9), 1)
    add(ledger, memory, "a", estimate(0.0, MASTERED), 2)
    assert memory.replay(0) is None
    assert sources(memory, kind="avoid") == ["source of a"]


def test_exemplars_are_drawn_among_the_best_of_the_frontier_and_repeat_with_the_seed(ledger):
    memory = Memory(ledger, 100)
    for rank in range(40):
        add(ledger, memory, f"e{rank:02}", estimate(1.0 - rank / 100), rank)
    best = {f"source of e{rank:02}" for rank in range(12)}
    drawn = [sources(memory, 4, seed) for seed in range(50)]
    assert all(len(set(names)) == 4 and set(names) <= best for names in drawn)
    assert set().union(*drawn) == best
    assert sources(memory, 4, 7) == drawn[7]


def test_half_of_the_exemplars_are_of_the_skill_and_the_rest_of_weak_ones(ledger):
    memory = Memory(ledger, 100)
    for i in range(10):
        add(ledger, memory, f"own{i}", estimate(0.5, no_hint=1.0), i, skill="own")
        add(ledger, memory, f"weak{i}", estimate(0.5, no_hint=0.0), i, skill="weak")
        add(ledger, memory, f"good{i}", estimate(0.5, no_hint=0.9), i, skill="good")
    drawn = [name for seed in range(200) for name in sources(memory, 2, seed, "own")]
    first, second = drawn[::2], drawn[1::2]
    assert all(name.startswith("source of own") for name in first)
    # Weights: weak 1, good 0.1, own 0.05, so of 200 second places weak has 174 +- 5.
    assert sum(name.startswith("source of weak") for name in second) > 150
    assert memory.weakness("never tried") == 1.0


def test_a_bad_example_is_of_the_asked_skill(ledger):
    memory = Memory(ledger, 10)
    add(ledger, memory, "a", estimate(0.0, MASTERED), 1, skill="x")
    assert sources(memory, skill="y", kind="avoid") == []
    assert sources(memory, skill="x", kind="avoid") == ["source of a"]
    assert Memory(ledger, 10, num_avoid=0).exemplars(2, 1, "x") == []


def test_an_exemplar_is_what_the_design_task_carries(ledger):
    memory = Memory(ledger, 1)
    add(ledger, memory, "a", estimate(0.5), 1, skill="logic")
    assert memory.exemplars(1, 0, "logic") == [
        {
            "source": "source of a",
            "skill": "logic",
            "labels": {"family": "sort", "level": "2"},
            "regret": 0.5,
            "mean_no_hint": 0.25,
            "mean_with_hint": 0.5,
            "kind": "inspire",
            "reason": "",
        }
    ]


def test_a_replay_is_of_the_frontier_best_first_by_its_seed(ledger):
    memory = Memory(ledger, 10)
    for name, paid, kind in (("a", 0.2, FRONTIER), ("b", 0.6, FRONTIER), ("c", 0.9, MASTERED)):
        add(ledger, memory, name, estimate(paid, kind), 1)
    assert [memory.replay(seed).environment_id for seed in range(4)] == ["b", "a", "b", "a"]


def test_a_large_frontier_is_replayed_by_number(ledger, monkeypatch):
    monkeypatch.setattr("spade_async.grounding.memory.OFFSETS_UP_TO", 3)
    memory = Memory(ledger, 10)
    for i in range(12):
        add(ledger, memory, f"e{i}", estimate(0.5, FRONTIER if i % 2 else MASTERED), i)
    assert replayed(memory, 200) == {f"e{i}" for i in (3, 5, 7, 9, 11)}


@pytest.mark.parametrize("capacity", [0, 1, 3])
def test_it_never_holds_more_than_its_capacity_and_a_resume_finds_it_as_it_was(ledger, capacity):
    memory = Memory(ledger, capacity, near_duplicate=0.9)
    for step in range(6):
        add(ledger, memory, f"e{step}", estimate(step / 10), step, signature=features(0, step))
    assert len(memory) == min(capacity, 6)
    keys = ledger.query("SELECT COUNT(*) FROM memory_bands")[0][0]
    assert keys == 10 * len(memory), "what leaves takes its keys along"
    resumed = Memory(ledger, capacity, near_duplicate=0.9)
    resumed.restore(json.loads(json.dumps(memory.state())))
    assert len(resumed) == len(memory)
    assert resumed.state() == memory.state()
    assert resumed.exemplars(2, 5) == memory.exemplars(2, 5)
    assert replayed(resumed) == replayed(memory)


def test_an_environment_without_skeleton_is_remembered_by_its_source(ledger):
    memory = Memory(ledger, 5)
    add(ledger, memory, "a", estimate(0.5), 1, skeleton="")
    add(ledger, memory, "b", estimate(0.5), 2, skeleton="")
    assert len(memory) == 2


def test_what_is_rolled_back_was_never_remembered(ledger):
    memory = Memory(ledger, 5)

    def fail():
        with ledger.transaction():
            ledger.add_environment(environment("a"), None, None, 0)
            memory.add(environment("a"), estimate(0.5), 0, win_rate=0.5)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert len(Memory(ledger, 5)) == 0


def test_the_reference_appends_whatever_comes_and_forgets_the_oldest(ledger):
    memory = ReferenceMemory(ledger, 3)
    for step, name in enumerate("aabc"):
        add(ledger, memory, name, estimate(0.5), step, skeleton="same", skill="s", win_rate=0.5)
    found = ledger.query("SELECT environment_id FROM memory ORDER BY number")
    assert [row[0] for row in found] == ["a", "b", "c"]


def test_the_reference_shows_its_band_by_regret_and_avoids_the_ends(ledger):
    memory = ReferenceMemory(ledger, 200)
    for i in range(30):
        add(ledger, memory, f"in{i:02}", estimate(i / 100), i, skill="s", win_rate=0.15)
    for name, win in (("low", 0.14), ("high", 0.86), ("easy", 0.91), ("hard", 0.05)):
        add(ledger, memory, name, estimate(0.99), 40, skill="s", win_rate=win)
    add(ledger, memory, "other", estimate(0.99), 41, skill="t", win_rate=0.5)
    drawn = [name for seed in range(60) for name in sources(memory, 2, seed, "s")]
    assert set(drawn) == {f"source of in{i:02}" for i in range(20, 30)}, "the best max(3n, 10)"
    bad = [x for s in range(60) for x in memory.exemplars(2, s, "s") if x["kind"] == "avoid"]
    assert len(bad) == 60
    assert {x["source"] for x in bad} == {"source of easy", "source of hard"}
    assert {x["reason"] for x in bad} == {"too easy, win rate 0.91", "too hard, win rate 0.05"}


def test_a_near_copy_is_refused_before_it_is_played_and_told_to_the_designer(ledger):
    memory = Memory(ledger, 10, near_duplicate=0.9)
    add(ledger, memory, "a", estimate(0.3), skill="s", signature=features())
    with ledger.transaction():
        told = memory.refuse_copy(environment("b"), features(change=8))
        assert told is not None
        assert told.startswith("near copy of environment a (similarity 0.9")
        assert memory.refuse_copy(environment("c"), features(change=300)) is None
        # Nothing is known of its shape, so nothing speaks against it.
        assert memory.refuse_copy(environment("d"), None) is None
    assert memory.num_alike == 1
    avoided = [x for x in memory.exemplars(1, 1, "s") if x["kind"] == "avoid"]
    shown = [x["source"] for x in memory.exemplars(1, 1, "s")]
    assert shown == ["source of a"], "still the best there is to be inspired by"
    assert not avoided
    add(ledger, memory, "e", estimate(0.9), skill="s", signature=features(seed=9))
    bad = {x["reason"] for seed in range(20) for x in memory.exemplars(1, seed, "s")}
    assert any("1 later program was too like it" in reason for reason in bad)


def test_without_near_copies_nothing_is_refused(ledger):
    memory = Memory(ledger, 10, near_duplicate=1.0)
    add(ledger, memory, "a", estimate(0.3), signature=features())
    with ledger.transaction():
        assert memory.refuse_copy(environment("b", "a"), features()) is None
    reference = ReferenceMemory(ledger, 10, near_duplicate=0.9)
    with ledger.transaction():
        assert reference.refuse_copy(environment("b"), features()) is None
