"""The default domain is complete, and its arms differ by the hint alone."""

from __future__ import annotations

from spade_async.designer import games
from spade_async.domain import load_domain


def test_the_default_domain_is_complete() -> None:
    assert load_domain("spade_async.designer.games") is games


def test_arms_differ_by_the_hint_alone() -> None:
    (without,) = games.agent_messages("state", None)
    (with_hint,) = games.agent_messages("state", "halve it")
    assert "HINT" not in without.content
    assert with_hint.content.replace("\n\nHINT: halve it", "") == without.content


def test_the_designer_sees_skill_document_and_exemplars() -> None:
    system, user = games.designer_messages(
        skill="Logical Deduction",
        document="Bayes' rule",
        exemplars=[{"source": "class OldEnv: pass", "regret": 0.25, "mean_no_hint": None}],
    )
    assert system.role == "system"
    for text in ("Logical Deduction", "<document>\nBayes' rule", "class OldEnv", "hint 0.25"):
        assert text in user.content


def test_without_document_and_exemplars_nothing_is_announced() -> None:
    _, user = games.designer_messages(skill="s", document=" ", exemplars=[])
    assert "<document>" not in user.content
    assert "earlier games" not in user.content.lower()


def test_the_skeleton_in_the_prompt_is_a_program_of_the_contract() -> None:
    _, user = games.designer_messages(skill="s", document="", exemplars=[])
    assert games.parse_program(user.content) is not None


def test_there_are_no_labels_seeds_held_out_items_or_models() -> None:
    assert games.labels("class AEnv: pass") == {}
    assert list(games.seed_environments(1)) == []
    assert games.held_out(8) == []
    assert games.prepare_model("nano", 1, lambda share, text: None) is None
