"""The designer's prompts: stored texts with their versions, routes, memory, what may be cut."""

from __future__ import annotations

import re

import pytest

from spade_async.designer import games, parse
from spade_async.designer.prompt import PROMPT_VERSIONS, ROUTES, design_prompt, route_of
from spade_async.designer.prompt_example import MIN_TURNS, example
from spade_async.designer.prompt_memory import (
    MAX_INSPIRING_CHARS,
    REFERENCE_CHARS,
    memory_block,
    reference_block,
)
from spade_async.domain import DesignRequest
from tests.support.golden_prompts import AVOIDED, FOLDER, INSPIRING, request, stored, written

STORED = stored()


@pytest.mark.parametrize("name", STORED)
def test_a_prompt_is_the_stored_one_and_a_new_text_needs_a_new_version(name: str) -> None:
    version, messages = STORED[name]
    found, wanted = written(version, messages), (FOLDER / f"{name}.txt").read_text()
    has_changed = found.split("\n", 1)[1] != wanted.split("\n", 1)[1]
    is_old = found.split("\n", 1)[0] == wanted.split("\n", 1)[0]
    assert not (has_changed and is_old), (
        f"the text of {version} changed: raise PROMPT_VERSIONS[{version!r}], then write "
        "`python -m tests.support.golden_prompts`"
    )
    assert found == wanted, "write it anew: python -m tests.support.golden_prompts"


def test_every_route_and_version_is_stored() -> None:
    assert {version for version, _ in STORED.values()} == set(PROMPT_VERSIONS)
    assert {p.stem for p in FOLDER.iterdir()} == set(STORED)
    assert set(ROUTES) <= set(STORED)


@pytest.mark.parametrize(
    ("configured", "document", "max_turns", "route"),
    [
        ("auto", "text", 12, "corpus"),
        ("auto", "  \n", 12, "multi_turn"),
        ("auto", "", 1, "single_turn"),
        ("auto", "text", 1, "single_turn"),
        ("multi_turn", "text", 12, "multi_turn"),
        ("corpus", "", 12, "corpus"),
    ],
)
def test_the_route_is_by_what_there_is(
    configured: str, document: str, max_turns: int, route: str
) -> None:
    assert route_of(configured, document, max_turns) == route


@pytest.mark.parametrize("route", ROUTES)
def test_leaving_the_document_out_changes_the_grounding_alone(route: str) -> None:
    # The reference takes another prompt without a corpus, so its ablation changes two things (4.1).
    with_document = design_prompt(request(route, document="heaps"))[1].content
    without = design_prompt(request(route))[1].content
    assert "<document>\nheaps\n</document>" in with_document
    assert "<document>" not in without
    rules = with_document[with_document.index("Rules of the program") :]
    assert without.endswith(rules)


def test_a_route_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match=r"designer\.prompt='haiku'.*multi_turn"):
        design_prompt(request("haiku"))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("hint_mode", ["environment", "self", "none"])
@pytest.mark.parametrize("max_turns", [1, 4, 25])
def test_the_skeleton_sets_the_turn_limit_and_pays_the_outcome(
    route: str, hint_mode: str, max_turns: int
) -> None:
    text = design_prompt(request(route, hint_mode=hint_mode, max_turns=max_turns))[1].content
    first = re.findall(r"```python\n(.*?)```", text, re.S)[0]
    assert parse.program(f"```python\n{first}```") is not None
    assert f"max_turns={max_turns}" in first
    assert "self.max_turns = max_turns" in first
    assert "reward = 1.0 if won else 0.0" in first
    assert ("def hint" in first) == ("hint()" in text) == (hint_mode == "environment")
    assert "no reward for progress" in text
    assert ("CourierEnv" in text) == (route != "single_turn" and max_turns >= MIN_TURNS)


def test_games_to_avoid_are_shown_with_code_and_reason() -> None:
    inspired, avoided = memory_block([AVOIDED, INSPIRING])
    assert "class OldEnv" in inspired
    assert "gain from the hint 0.38" in inspired
    assert "class EasyEnv" in avoided
    assert "Why: mastered: solved without the hint" in avoided
    assert memory_block([]) == []


def test_an_item_with_a_source_alone_is_there_to_inspire() -> None:
    (block,) = memory_block([{"source": "class AEnv: pass", "regret": None}])
    assert "Earlier game:\n```python\nclass AEnv: pass\n```" in block


def test_a_long_program_is_cut_between_lines_and_says_so() -> None:
    whole = "\n".join(f"x{i} = {i}" for i in range(320))
    assert whole in memory_block([{"source": whole}])[0]
    long = "\n".join(f"variable_{i} = 'some text of this line'" for i in range(1000))
    (block,) = memory_block([{"source": long}])
    shown = block.split("```python\n")[1].split("\n```")[0].split("\n")
    assert len("\n".join(shown)) <= MAX_INSPIRING_CHARS + 40
    assert shown[:-1] == long.split("\n")[: len(shown) - 1]
    assert shown[-1] == f"# ... {1000 - len(shown) + 1} more lines"


def test_the_example_is_a_program() -> None:
    for with_hint in (True, False):
        source = example(12, with_hint=with_hint)
        assert parse.program(source) == source
        assert ("def hint" in source) == with_hint


def test_a_plain_call_of_the_domain_gives_the_same_prompt() -> None:
    wanted = design_prompt(DesignRequest(skill="s", document="d"))
    assert games.designer_messages(skill="s", document="d", exemplars=[]) == wanted


def test_the_reference_s_rules_are_there_for_who_compares() -> None:
    long = "\n".join(f"x{i} = {i}" for i in range(1000))
    inspired, avoided = reference_block([INSPIRING | {"source": long}, AVOIDED, AVOIDED])
    assert long[:REFERENCE_CHARS].rstrip() in inspired
    assert long[: REFERENCE_CHARS + 2] not in inspired
    assert "too easy, win rate 1.00" in avoided
    assert "class EasyEnv" not in avoided
    asked = request("multi_turn", document="heaps", exemplars=(AVOIDED,), compat="reference")
    text = design_prompt(asked)[1].content
    assert "built on the document" in text  # a document decides the route there (4.1)
    assert "class EasyEnv" not in text
    assert "class EasyEnv" in design_prompt(request("multi_turn", exemplars=(AVOIDED,)))[1].content
