"""A prompt longer than the context: document cut first, exemplars next, else skipped by name."""

from __future__ import annotations

import re

import pytest

from spade_async.designer import games
from spade_async.domain import ChatTurn, DesignRequest
from spade_async.errors import PROMPT_TOO_LONG, GenerationError, PromptTooLong
from spade_async.generator.design_prompt import MIN_DOCUMENT_WORDS, FittedPrompt, fit
from tests.support.fake_tokens import FakeTokens

TOKENS = FakeTokens()
DOCUMENT = " ".join(f"word{i:04d}" for i in range(1000))
EXEMPLARS = tuple({"source": f"class Number{i}Env:\n" + "    x = 1\n" * 50} for i in range(2))


def size(**fields: object) -> int:
    request = DesignRequest(skill="s", **fields)  # type: ignore[arg-type]
    return len(TOKENS.encode_prompt(games.design_prompt(request)))


def fitted(context: int, **fields: object) -> FittedPrompt:
    request = DesignRequest(skill="s", **fields)  # type: ignore[arg-type]
    return fit(TOKENS, games, request, max_context_tokens=context, max_new_tokens=100)


def text(prompt: FittedPrompt) -> str:
    return "".join(m.content for m in prompt.messages)


WHOLE = size(document=DOCUMENT, exemplars=EXEMPLARS)
SHORT = size(document=" ".join(DOCUMENT.split()[:MIN_DOCUMENT_WORDS]), exemplars=EXEMPLARS)


def test_what_fits_is_left_as_it_is() -> None:
    found = fitted(WHOLE + 100, document=DOCUMENT, exemplars=EXEMPLARS)
    assert DOCUMENT in text(found)
    assert (len(found.ids), found.room) == (WHOLE, 100)
    assert found.facts == {"tokens": WHOLE}


def test_the_document_is_cut_first_and_no_more_than_needed() -> None:
    # Each word is 9 characters with its space, so 90 characters too many are 10 words.
    found = fitted(WHOLE + 100 - 90, document=DOCUMENT, exemplars=EXEMPLARS)
    assert found.facts["document_words_cut"] == 10
    assert "exemplars_dropped" not in found.facts
    assert "Number1Env" in text(found)
    assert "word0989\n</document>" in text(found)
    assert found.room >= 100
    assert len(re.findall(r"word\d{4}", text(found))) == 990


def test_exemplars_are_dropped_next_the_last_first() -> None:
    found = fitted(SHORT + 100 - 1, document=DOCUMENT, exemplars=EXEMPLARS)
    assert found.facts["document_words_cut"] == 1000 - MIN_DOCUMENT_WORDS
    assert found.facts["exemplars_dropped"] == 1
    assert "Number0Env" in text(found)
    assert "Number1Env" not in text(found)


def test_a_short_document_is_not_cut() -> None:
    short = "three short words"
    room = size(document=short, exemplars=EXEMPLARS[:1]) + 100
    found = fitted(room, document=short, exemplars=EXEMPLARS)
    assert found.facts == {"tokens": room - 100, "exemplars_dropped": 1}
    assert short in text(found)


def test_what_fits_in_no_way_is_skipped_by_name() -> None:
    with pytest.raises(PromptTooLong) as caught:
        fitted(1000, document=DOCUMENT, exemplars=EXEMPLARS)
    assert isinstance(caught.value, GenerationError)
    for part in ("50 words", "no exemplars", "max_new_tokens=100", "model.max_context_tokens=1000"):
        assert part in str(caught.value)
    assert PROMPT_TOO_LONG == "PromptTooLong"


def test_a_domain_without_a_prompt_of_its_own_gets_skill_document_and_exemplars() -> None:
    class Plain:
        @staticmethod
        def designer_messages(**given: object) -> list[ChatTurn]:
            return [ChatTurn("user", repr(sorted(given.items())))]

    found = fit(
        TOKENS,
        Plain(),  # type: ignore[arg-type]
        DesignRequest(skill="s", document="d", exemplars=({"source": "x"},)),
        max_context_tokens=1000,
        max_new_tokens=1,
    )
    wanted = {"skill": "s", "document": "d", "exemplars": [{"source": "x"}]}
    assert found.messages[0].content == repr(sorted(wanted.items()))
