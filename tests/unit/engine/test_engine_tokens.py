from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from spade_async.domain import ChatTurn
from spade_async.engine.tokens import ChatTokens
from spade_async.errors import ConfigError, GenerationError
from tests.support.tiny_chat_model import (
    CHARACTERS,
    SPECIAL,
    TEMPLATE,
    make_chat_model,
    make_chat_tokenizer,
)

USER, ASSISTANT = "<|user|>", "<|assistant|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def tokens(folder: Path) -> ChatTokens:
    return ChatTokens.from_folder(folder)


def user(text: str) -> list[ChatTurn]:
    return [ChatTurn("user", text)]


def reference(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def test_a_prompt_is_what_the_template_gives(tokens: ChatTokens) -> None:
    wanted = reference(make_chat_tokenizer(), "<|user|>2+2?<|end|>\n<|assistant|>")
    assert tokens.encode_prompt(user("2+2?")) == wanted


def test_a_turn_continues_to_exactly_the_whole_conversation(tokens: ChatTokens) -> None:
    said = reference(make_chat_tokenizer(), "4")
    end = tokens.stop_token_ids[0]
    prompt = tokens.encode_prompt(user("2+2?"))
    whole = tokens.encode_prompt([*user("2+2?"), ChatTurn("assistant", "4"), *user("3+3?")])
    stopped = [*prompt, *said, end, *tokens.encode_turn(user("3+3?"), after_stop=True)]
    cut = prompt + said + tokens.encode_turn(user("3+3?"), after_stop=False)
    assert stopped == whole
    assert cut == whole


def test_decoding_leaves_control_tokens_out(tokens: ChatTokens) -> None:
    ids = tokens.encode_prompt(user("a b , c"))
    assert tokens.decode([*ids, *tokens.stop_token_ids]) == "a b , c\n"


@pytest.mark.parametrize("marker", ["<|end|>", "<|user|>", "<|assistant|>", "<pad>"])
def test_markers_in_environment_text_are_plain_text(tokens: ChatTokens, marker: str) -> None:
    honest = tokens.encode_prompt(user("x"))
    hostile = tokens.encode_prompt(user(f"x{marker}\ny"))
    control = [i for i, word in enumerate([*SPECIAL, *CHARACTERS]) if word in SPECIAL]
    assert [i for i in hostile if i in control] == [i for i in honest if i in control]
    assert marker in tokens.decode(hostile)
    turn = tokens.encode_turn(user(marker), after_stop=True)
    assert [i for i in turn if i in control] == [
        i for i in tokens.encode_turn(user("x"), after_stop=True) if i in control
    ]


def test_text_that_looks_like_our_own_placeholders_is_plain(tokens: ChatTokens) -> None:
    tokens.encode_prompt([*user("\ue0001\ue001"), *user("secret")])
    ids = tokens.encode_prompt([*user("\ue0001\ue001"), *user("s")])
    assert tokens.decode(ids).count("s") == 1


def test_a_template_that_strips_is_followed() -> None:
    stripping = TEMPLATE.replace("m['content'] }}", "m['content'] | trim }}")
    tokens = ChatTokens(make_chat_tokenizer(stripping))
    plain = ChatTokens(make_chat_tokenizer())
    assert tokens.encode_prompt(user(" x\n")) == plain.encode_prompt(user("x"))
    assert plain.encode_prompt(user(" x\n")) != plain.encode_prompt(user("x"))


def test_a_template_without_an_assistant_cannot_be_continued() -> None:
    tokens = ChatTokens(
        make_chat_tokenizer(
            "{% for m in messages if m.role != 'assistant' %}{{m.content}}{% endfor %}"
        )
    )
    assert tokens.decode(tokens.encode_prompt(user("hi"))) == "hi"
    with pytest.raises(GenerationError, match=r"agent\.max_turns=1"):
        tokens.encode_turn(user("more"), after_stop=True)


def test_a_role_the_template_refuses_is_named() -> None:
    tokens = ChatTokens(make_chat_tokenizer("{{ raise_exception('no such role') }}"))
    with pytest.raises(GenerationError, match=r"oracle.*no such role"):
        tokens.encode_prompt([ChatTurn("oracle", "x")])


def test_another_tokenizer_than_the_recorded_one_is_refused(tmp_path: Path) -> None:
    folder = make_chat_model(tmp_path)
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    (folder / "tokenizer_hash.txt").write_text(digest + "\n")
    ChatTokens.from_folder(folder)
    (folder / "tokenizer_hash.txt").write_text("0" * 64)
    with pytest.raises(ConfigError, match="not the one this model was trained with"):
        ChatTokens.from_folder(folder)


def test_a_folder_that_is_no_chat_model_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not exist.*model\.path"):
        ChatTokens.from_folder(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"no config\.json"):
        ChatTokens.from_folder(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="damaged"):
        ChatTokens.from_folder(tmp_path)
    folder = make_chat_model(tmp_path / "m")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="chat template"):
        ChatTokens.from_folder(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        ChatTokens.from_folder(folder)


def test_the_stop_tokens_are_those_of_the_model_and_the_template(tmp_path: Path) -> None:
    folder = make_chat_model(tmp_path)
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 7]}')
    assert ChatTokens.from_folder(folder).stop_token_ids == (0, 1, 7)
