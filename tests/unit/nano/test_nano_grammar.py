"""The grammar: programs are Python, do what their reference says, and are labelled by content."""

from __future__ import annotations

import ast
import random
from itertools import islice
from typing import Any

import pytest

from spade_async.environment.contract import class_name, hint_problem, skeleton, source_problem
from spade_async.nano import domain
from spade_async.nano.families import FAMILIES, LEVELS
from spade_async.nano.grammar import HELD_OUT_SEED, HINTS, Program, draw
from spade_async.nano.recognise import recognise

CELLS = [(family, level) for family in FAMILIES for level in LEVELS]


def programs(count: int, *, held_out: bool = False, seed: int = 3) -> list[Program]:
    rng = random.Random(seed)
    return [draw(rng, *CELLS[i % len(CELLS)], held_out=held_out) for i in range(count)]


def load(source: str) -> Any:
    """An instance of the environment. Only for our own grammar's text, never a model's."""
    namespace: dict[str, Any] = {}
    exec(compile(source, "grammar", "exec"), namespace)
    return namespace[class_name(source) or ""]()


@pytest.mark.parametrize("held_out", [False, True])
def test_a_program_does_what_its_reference_says(held_out: bool) -> None:
    for i, program in enumerate(programs(480, held_out=held_out)):
        environment = load(program.source)
        instance = program.instance(i)
        observation, info = environment.reset(i)
        assert (observation, info) == (instance.observation, {})
        assert environment.hint() == instance.hint
        assert environment.step(f" {instance.answer}\n") == ("done", 1.0, True, False, {})
        environment.reset(seed=i)
        assert environment.step(instance.answer + "0")[1] == 0.0


def test_programs_fit_the_contract_of_games() -> None:
    for program in programs(480):
        ast.parse(program.source)
        assert source_problem(program.source) is None
        assert class_name(program.source) == f"{FAMILIES[program.family].class_name}Env"
        assert all(hint_problem(program.instance(i).hint) is None for i in range(5))


def test_answers_are_short() -> None:
    lengths = [len(p.instance(i).answer) for i, p in enumerate(programs(2000))]
    assert min(lengths) >= 1
    assert max(lengths) <= 10


def test_known_answers_of_each_family() -> None:
    def solved(family: str, items: list[int] | list[str], form: int = 0) -> tuple[str, str, str]:
        s = FAMILIES[family].solve(items, 1, form)
        return s.observation, s.answer, s.own_hint

    assert solved("add", [27, 15]) == ("add 27 15", "42", "ones 12")
    assert solved("sub", [15, 27]) == ("sub 15 27", "12", "tens 1")
    assert solved("mul", [6, 7]) == ("mul 6 7", "42", "less 36")
    assert solved("mod", [17, 5]) == ("mod 17 5", "2", "below 15")
    assert solved("max", [3, 9, 4]) == ("max 3 9 4", "9", "at 1")
    assert solved("min", [3, 9, 4]) == ("min 3 9 4", "3", "at 0")
    assert solved("sum", [3, 9, 4, 1]) == ("sum 3 9 4 1", "17", "half 12")
    assert solved("reverse", ["a", "b", "c", "d"]) == ("reverse abcd", "dcba", "dcb")
    assert solved("sort", [3, 1, 2]) == ("sort 312", "123", "123")
    assert solved("count", ["a", "b", "a"]) == ("count aba", "2", "half 1")
    assert solved("nth", [5, 6, 7]) == ("nth 1 in 5 6 7", "6", "after 5")
    assert solved("sequence", [2, 5, 8]) == ("next 2 5", "8", "step 3")
    assert solved("sequence", [2, 5, 8], 1) == ("prev 5 8", "2", "step 3")


def test_labels_follow_the_constants_of_the_program() -> None:
    for held_out in (False, True):
        for i, program in enumerate(programs(480, held_out=held_out)):
            family, level = CELLS[i % len(CELLS)]
            assert domain.labels(program.source) == {"family": family, "level": str(level)}


def test_labels_see_through_a_wrong_class_name() -> None:
    program = Program("sort", "list", 0, "first", lo=1, hi=9, n=4, lo2=0, hi2=0)
    renamed = program.source.replace("SortEnv", "HardestEnv")
    assert domain.labels(renamed) == {"family": "sort", "level": "2"}


@pytest.mark.parametrize(
    "text", ["", "class A", "self.a = 1", "x" * 100_000, "        x = 1\n" * 9]
)
def test_unknown_text_has_no_labels(text: str) -> None:
    assert domain.labels(text) == {}


def test_there_are_dozens_of_skeletons_and_thousands_of_programs() -> None:
    sources = {program.source for program in programs(6000)}
    assert len(sources) > 4000
    assert len({skeleton(source) for source in sources}) >= 60


def test_every_hint_kind_occurs() -> None:
    assert {program.hint for program in programs(480)} == set(HINTS)


def test_programs_are_recognised_and_changed_ones_are_not() -> None:
    for program in programs(480):
        assert recognise(program.source) is not None
        assert recognise(program.source.replace("self.h\n", "self.a\n")) is None
    bad = Program("sum", "list", 0, "own", lo=9, hi=1, n=4, lo2=0, hi2=0)
    assert recognise(bad.source) is None


def test_seed_environments_are_fixed_by_their_seed_and_cover_all_cells() -> None:
    first = list(islice(domain.seed_environments(5), 1500))
    assert first == list(islice(domain.seed_environments(5), 1500))
    assert first[:20] != list(islice(domain.seed_environments(6), 20))
    found = {tuple(domain.labels(source).values()) for source in first}
    assert found == {(family, str(level)) for family, level in CELLS}


def test_the_held_out_set_is_fixed_spread_and_apart() -> None:
    items = domain.held_out(24)
    assert items == domain.held_out(24)
    assert [item.level for item in items] == [str(level) for level in LEVELS for _ in range(24)]
    assert all(item.seed >= HELD_OUT_SEED for item in items)
    assert all(domain.labels(item.source)["level"] == item.level for item in items)
    families = {domain.labels(item.source)["family"] for item in items if item.level == "1"}
    assert families == set(FAMILIES)
    assert domain.held_out(12)[:12] == items[:12]
