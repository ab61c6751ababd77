"""The tokenizer: same ids everywhere, programs byte for byte, hash beside the weights."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from spade_async.engine.tokens import ChatTokens
from spade_async.errors import ConfigError
from spade_async.nano.chat import render
from spade_async.nano.domain import agent_messages, agent_turn, designer_messages, hint_messages
from spade_async.nano.families import FAMILIES, LEVELS
from spade_async.nano.grammar import draw
from spade_async.nano.model import build_model
from spade_async.nano.tokenizer import HASH_FILE, check_tokenizer, save_tokenizer
from spade_async.nano.vocabulary import END, PAD, UNKNOWN, vocabulary

VOCABULARY_DIGEST = "1ac6c04445be86b5522ab7cdaed56d9accfdf13145644f9e6526350b35c42ed1"
"""sha256 of the token list. A change here changes every checkpoint: say so in the change log."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(path)
    build_model(1).config.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return loaded


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def test_the_order_of_the_vocabulary_is_golden() -> None:
    assert hashlib.sha256(repr(vocabulary()).encode()).hexdigest() == VOCABULARY_DIGEST


def test_ids_follow_the_list(tokenizer: PreTrainedTokenizerBase) -> None:
    assert len(tokenizer) == len(vocabulary())
    assert tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))) == list(vocabulary())
    assert (tokenizer.pad_token, tokenizer.eos_token) == (PAD, END)
    assert tokenizer.unk_token == UNKNOWN


def test_programs_round_trip_byte_for_byte(tokenizer: PreTrainedTokenizerBase) -> None:
    rng = random.Random(0)
    lengths = []
    for i in range(480):
        source = draw(rng, list(FAMILIES)[i % 12], LEVELS[i // 12 % 4]).source
        ids = encode(tokenizer, source)
        lengths.append(len(ids))
        assert tokenizer.decode(ids) == source
        assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == source
    assert max(lengths) < 70


@pytest.mark.parametrize(
    "text", ["", "h\u00e9llo\tthere \U0001f600", "\r\n", "a" * 3000, "sorted maxima"]
)
def test_any_text_encodes(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    ids = encode(tokenizer, text)
    expected = "".join(c if c == "\n" or " " <= c <= "~" else UNKNOWN for c in text)
    assert tokenizer.decode(ids) == expected


def test_the_chat_template_equals_the_warm_starts_rendering(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    for turns in (
        designer_messages(skill="s", document="sorted things", exemplars=[]),
        hint_messages("class AEnv:\n"),
        agent_messages("max 3 14 9", None),
        agent_messages("max 3 14 9", "1?"),
        agent_turn("again"),
    ):
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert text == render(turns)
        ids = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        assert ids == encode(tokenizer, text)


def test_a_designer_prompt_is_at_most_16_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    turns = designer_messages(skill="s", document="incomprehensibilities", exemplars=[])
    assert len(encode(tokenizer, render(turns))) <= 16


def test_another_tokenizer_than_the_stored_one_is_refused(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    check_tokenizer(tmp_path)
    stored = (tmp_path / HASH_FILE).read_text().strip()
    assert stored == hashlib.sha256((tmp_path / "tokenizer.json").read_bytes()).hexdigest()
    with (tmp_path / "tokenizer.json").open("a") as handle:
        handle.write(" ")
    with pytest.raises(ConfigError, match="has digest"):
        check_tokenizer(tmp_path)
    (tmp_path / HASH_FILE).unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        check_tokenizer(tmp_path)


def test_a_run_encodes_prompts_to_the_ids_that_the_warm_start_taught(
    folder: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    tokens = ChatTokens.from_folder(folder)
    assert tokens.stop_token_ids == (tokenizer.eos_token_id,)
    for turns in (
        designer_messages(skill="s", document="occurrences", exemplars=[]),
        agent_messages("nth 2 in 5 6 7", None),
        agent_messages("reverse abc", "?ba"),
    ):
        assert tokens.encode_prompt(turns) == encode(tokenizer, render(turns))
    rng = random.Random(4)
    source = draw(rng, "count", 3).source
    assert tokens.decode([*encode(tokenizer, source), *tokens.stop_token_ids]) == source


def test_a_second_turn_continues_after_the_end_token(
    folder: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    tokens = ChatTokens.from_folder(folder)
    expected = encode(tokenizer, "<|turn|>again<|reply|>")
    assert tokens.encode_turn(agent_turn("again"), after_stop=True) == expected
