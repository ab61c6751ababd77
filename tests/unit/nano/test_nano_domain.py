"""The domain's prompts and parsing, and that the warm start teaches exactly those prompts."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import islice

import pytest

from spade_async.domain import ChatTurn, load_domain
from spade_async.nano import domain, lessons
from spade_async.nano.chat import render
from spade_async.nano.families import FAMILIES
from spade_async.nano.grammar import draw
from spade_async.nano.topics import KEYWORDS, TOPIC_WORDS, topic


def test_the_domain_is_complete_and_imports_no_torch() -> None:
    code = (
        "import sys; from spade_async.domain import load_domain;"
        "load_domain('spade_async.nano.domain');"
        "sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'tokenizers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
    assert load_domain("spade_async.nano.domain") is not None


def test_a_program_survives_parsing_byte_for_byte() -> None:
    rng = random.Random(1)
    for family in FAMILIES:
        source = draw(rng, family, 2).source
        assert domain.parse_program(source) == source
        assert domain.parse_program(source + "<|end|>noise") == source


@pytest.mark.parametrize(
    "reply", ["", "<|end|>", "import random\n", "class A<|unk|>Env:\n", "a" * 9999]
)
def test_a_reply_without_an_environment_is_no_program(reply: str) -> None:
    assert domain.parse_program(reply) is None


def test_an_action_ends_at_the_end_token_and_is_stripped() -> None:
    assert domain.parse_action(" 42 <|end|>7") == "42"
    assert domain.parse_action("") == ""


def test_arms_differ_by_the_hint_alone() -> None:
    plain = render(domain.agent_messages("add 3 4", None))
    hinted = render(domain.agent_messages("add 3 4", "7?"))
    assert plain == "<|agent|>add 3 4<|reply|>"
    assert hinted == "<|agent|>add 3 4<|hint|>7?<|reply|>"


def test_the_designer_sees_one_topic_word() -> None:
    turns = domain.designer_messages(skill="s", document="Heap queues!", exemplars=[{"a": 1}])
    assert turns == domain.designer_messages(skill="s", document="Heap queues!", exemplars=[])
    assert render(turns) in ("<|designer|>heap<|reply|>", "<|designer|>queues<|reply|>")
    assert topic("12 !", "s") == topic("", "s")


def test_half_of_the_documents_with_keywords_give_one() -> None:
    words = [topic(f"{i} return the largest of some values", "s") for i in range(2000)]
    share = words.count("largest") / len(words)
    # One in two by the rule, and one in six of the other half ("the" ... "values" are 6 words).
    assert 0.5 < share < 0.68


def test_keywords_are_distinct_and_fit_a_prompt() -> None:
    assert len(set(TOPIC_WORDS)) == len(TOPIC_WORDS) == sum(map(len, KEYWORDS.values()))
    assert set(KEYWORDS) == set(FAMILIES)


def test_lessons_use_the_prompts_of_a_run() -> None:
    rng = random.Random(2)
    program = draw(rng, "add", 2)
    instance = program.instance(7)
    hinted = lessons.agent_lesson(program, 7, hinted=True)
    plain = lessons.agent_lesson(program, 7, hinted=False)
    assert hinted.prompt == render(domain.agent_messages(instance.observation, instance.hint))
    assert plain.prompt == render(domain.agent_messages(instance.observation, None))
    assert hinted.reply == plain.reply == domain.parse_action(plain.reply)
    for lesson in islice(lessons.designer_lessons(1), 200):
        word = lesson.prompt.removeprefix("<|designer|>").removesuffix("<|reply|>")
        assert render(domain.designer_messages(skill="s", document=word, exemplars=[])) == (
            lesson.prompt
        )
        assert domain.parse_program(lesson.reply) == lesson.reply


def test_lessons_are_fixed_by_the_seed() -> None:
    first = list(islice(lessons.agent_lessons(1, 9), 50))
    assert first == list(islice(lessons.agent_lessons(1, 9), 50))
    assert first != list(islice(lessons.agent_lessons(2, 9), 50))


def test_the_designers_lessons_start_low_and_level() -> None:
    found = [domain.labels(x.reply) for x in islice(lessons.designer_lessons(1), 4000)]
    mean = sum(int(label["level"]) for label in found) / len(found)
    assert 1.9 < mean < 2.1
    counts = [sum(label["family"] == name for label in found) for name in FAMILIES]
    assert min(counts) > 4000 / 12 * 0.7


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(ValueError, match="role='system'"):
        render([ChatTurn("system", "x")])


def test_only_the_name_nano_is_made_here() -> None:
    assert domain.prepare_model("some/folder", 1, lambda fraction, text: None) is None
