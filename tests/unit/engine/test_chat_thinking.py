"""Templates with and without thinking: the switch, what is asked next, and what is trained.

Where the reference's own token accounting goes wrong (6.4 a-d), the right value is stated here.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from spade_async.agent.episode import Play, Player, PlayLimits, play_episode
from spade_async.agent.prompt import Said
from spade_async.designer import games
from spade_async.domain import ChatTurn
from spade_async.engine.scripted import ScriptedEngine
from spade_async.engine.tokens import ChatTokens
from spade_async.errors import ConfigError
from spade_async.types import Arm, TokenTrace
from tests.support import qwen_like
from tests.support.fake_jail import FakeJail, Script, value
from tests.support.tiny_chat_model import make_chat_tokenizer

LIMITS = PlayLimits(max_turns=3, max_new_tokens=400, max_context_tokens=4096, temperature=1.0)
THREE = Script(step=[value("one door", 0.0), value("two doors", 0.0), value("over", 1.0, end=True)])
KINDS = {"bpe": qwen_like.make_bpe_tokenizer, "characters": qwen_like.make_character_tokenizer}
TEMPLATES = (qwen_like.TEMPLATE, qwen_like.WITHOUT_SWITCH, qwen_like.REMEMBERS)
TOKENIZERS = {(kind, t): make(t) for kind, make in KINDS.items() for t in TEMPLATES}


def tokenizer(kind: str, template: str = qwen_like.TEMPLATE) -> Any:
    return TOKENIZERS[kind, template]


def encoded(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def canonical(tokenizer: Any, messages: list[tuple[str, str]], **switches: Any) -> list[int]:
    """What transformers makes of the messages with the tokenizer's own template."""
    turns = [{"role": role, "content": content} for role, content in messages]
    text = tokenizer.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=True, **switches
    )
    return encoded(tokenizer, text)


def play(
    tokens: ChatTokens, replies: list[list[int]], script: Script = THREE
) -> tuple[TokenTrace, list[list[int]]]:
    """An episode of scripted replies: its trace, and the prompts that the engine was given."""

    async def run() -> tuple[TokenTrace, list[list[int]]]:
        engine = ScriptedEngine(replies)
        player = Player(engine, tokens, FakeJail(script), games)
        instance = Play("e", "class AEnv: pass", "none", "", Arm.NO_HINT, 7, 99)
        episode = (await play_episode(player, instance, LIMITS)).episode
        assert episode.trace is not None, episode
        return episode.trace, engine.prompts

    return asyncio.run(run())


def sampled(trace: TokenTrace) -> list[int]:
    return [int(t) for t in trace.token_ids[trace.loss_mask == 1]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("thinking", [True, False, None])
def test_a_prompt_is_what_the_template_gives_in_that_mode(kind: str, thinking: bool | None) -> None:
    switches = {} if thinking is None else {"enable_thinking": thinking}
    tokens = ChatTokens(tokenizer(kind), thinking=thinking)
    messages = [("system", "be brief"), ("user", "2+2?\n")]
    wanted = canonical(tokenizer(kind), messages, **switches)
    assert tokens.encode_prompt([ChatTurn(*m) for m in messages]) == wanted
    end = "assistant\n<think>\n\n</think>\n\n" if thinking is False else "<|im_start|>assistant\n"
    assert tokens.exact_text(wanted).endswith(end)


@pytest.mark.parametrize("kind", KINDS)
def test_thinking_makes_a_sequence_of_each_turn_with_earlier_thoughts_left_out(kind: str) -> None:
    """A14: turn k's prompt is the template's own rendering; what was sampled is kept verbatim."""
    own = tokenizer(kind)
    tokens = ChatTokens(own, thinking=True)
    said = [f"<think>\nthought {i}\n</think>\n\nI go \\boxed{{{i}}}" for i in range(3)]
    replies = [encoded(own, f"{text}<|im_end|>") for text in said]
    trace, prompts = play(tokens, replies)
    first = games.agent_messages(THREE.reset.observation, None)[0].content
    history = [("user", first)]
    for i, (prompt, part) in enumerate(zip(prompts, trace.sequences(), strict=True)):
        assert prompt == canonical(own, history, enable_thinking=True)
        assert part.token_ids.tolist() == prompt + replies[i]
        assert part.loss_mask.tolist() == [0] * len(prompt) + [1] * len(replies[i])
        assert "thought" not in tokens.exact_text(prompt)
        history += [("assistant", said[i]), ("user", ("one door", "two doors", "")[i])]
    assert len(trace.starts) == 3
    assert sampled(trace) == [token for reply in replies for token in reply]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("template", "thinking"),
    [(qwen_like.TEMPLATE, False), (qwen_like.WITHOUT_SWITCH, None), (qwen_like.REMEMBERS, None)],
)
def test_without_thoughts_to_leave_out_an_episode_is_one_sequence(
    kind: str, template: str, thinking: bool | None
) -> None:
    own = tokenizer(kind, template)
    tokens = ChatTokens(own, thinking=thinking)
    thought = "<think>\nhm\n</think>\n\n" if template is qwen_like.REMEMBERS else ""
    replies = [encoded(own, f"{thought}\\boxed{{{i}}}<|im_end|>") for i in range(3)]
    trace, prompts = play(tokens, replies)
    assert trace.starts == ()
    assert trace.sequences() == (trace,)
    assert trace.token_ids.tolist() == prompts[2] + replies[2]
    for before, reply, after in zip(prompts, replies, prompts[1:], strict=False):
        assert after[: len(before) + len(reply)] == before + reply
    assert sampled(trace) == [token for reply in replies for token in reply]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("thinking", [True, False])
def test_flaw_a_the_new_line_after_an_end_of_turn_is_kept(kind: str, thinking: bool) -> None:
    own = tokenizer(kind)
    thought = "<think>\nhm\n</think>\n\n" if thinking else ""
    reply = encoded(own, f"{thought}go<|im_end|>")
    tokens = ChatTokens(own, thinking=thinking)
    _, prompts = play(tokens, [reply])
    assert "go<|im_end|>\n<|im_start|>user\none door<|im_end|>\n" in tokens.exact_text(prompts[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("thinking", [True, False])
def test_flaw_b_an_end_of_turn_is_written_once(kind: str, thinking: bool) -> None:
    own = tokenizer(kind)
    thought = "<think>\nhm\n</think>\n\n" if thinking else ""
    tokens = ChatTokens(own, thinking=thinking)
    _, prompts = play(tokens, [encoded(own, f"{thought}go<|im_end|>")])
    # Of the first user message, the first reply, the second message, and so on.
    assert [tokens.exact_text(p).count("<|im_end|>") for p in prompts] == [1, 3, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_flaw_c_later_turns_are_rendered_with_the_switch(kind: str) -> None:
    own = tokenizer(kind)
    for thinking, end in ((False, "<think>\n\n</think>\n\n"), (True, "<|im_start|>assistant\n")):
        tokens = ChatTokens(own, thinking=thinking)
        fragment = tokens.encode_turn([ChatTurn("user", "next")], after_stop=True)
        wanted = "\n<|im_start|>user\nnext<|im_end|>\n<|im_start|>assistant\n"
        text = tokens.exact_text(fragment)
        assert text.startswith(wanted)
        assert text.endswith(end)


@pytest.mark.parametrize("kind", KINDS)
def test_flaw_d_a_later_message_is_whole_whatever_was_thought_before(kind: str) -> None:
    # The reference slices by the length of a rendering in which the thoughts are still there.
    own = tokenizer(kind)
    tokens = ChatTokens(own, thinking=True)
    said = "<think>\n" + "a long thought " * 20 + "\n</think>\n\n\\boxed{1}"
    _, prompts = play(tokens, [encoded(own, f"{said}<|im_end|>")])
    assert tokens.exact_text(prompts[1]).endswith(
        "<|im_start|>assistant\n\\boxed{1}<|im_end|>\n<|im_start|>user\none door<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_ids_of_a_reply_are_never_made_anew_from_its_text() -> None:
    own = tokenizer("bpe")
    tokens = ChatTokens(own, thinking=True)
    # Letter by letter, as a policy may sample and the tokenizer never would.
    letters = [token for letter in "playing" for token in encoded(own, letter)]
    assert letters != encoded(own, "playing")
    reply = [*encoded(own, "<think>\nhm\n</think>\n\n"), *letters, *encoded(own, "<|im_end|>")]
    _, prompts = play(tokens, [reply])
    place = prompts[1].index(letters[0], len(prompts[0]) - 8)
    assert prompts[1][place : place + len(letters)] == letters
    one = tokens.encode_history([ChatTurn("user", "a"), Said(tuple(reply)), ChatTurn("user", "b")])
    assert tokens.exact_text(one) == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nplaying<|im_end|>\n"
        "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spelled", [False, True])
def test_what_is_remembered_of_a_reply_is_what_follows_its_last_thought(
    kind: str, spelled: bool
) -> None:
    own = tokenizer(kind)
    tokens = ChatTokens(own, thinking=True)

    def ids(text: str) -> list[int]:
        """With the mark as its own token, or spelled out as a policy may sample it."""
        if not spelled:
            return encoded(own, text)
        return [token for character in text for token in encoded(own, character)]

    for thoughts in ("<think>\na\n</think>", "a</think>b\n</think>", "</think>"):
        reply = [*ids(thoughts), *ids("\n\n"), *(answer := ids("I go </ there"))]
        assert tokens.remembered([*reply, *tokens.stop_token_ids[:1]]) == answer
        assert tokens.remembered(answer) == answer
    mixed = [
        *encoded(own, "a</think>"),
        *[t for c in "b</think>" for t in encoded(own, c)],
        *answer,
    ]
    assert tokens.remembered(mixed) == answer


def test_a_reply_that_is_nothing_but_thought_leaves_an_empty_answer() -> None:
    own = tokenizer("characters")
    tokens = ChatTokens(own, thinking=True)
    for reply in ("<think>\nhm\n</think>", "<think>a</think>b</think>\n\n\n"):
        ids = encoded(own, reply)
        assert tokens.retells(ids)
        told = tokens.encode_history(
            [ChatTurn("user", "a"), Said(tuple(ids)), ChatTurn("user", "b")]
        )
        assert "assistant\n<|im_end|>\n<|im_start|>user\nb" in tokens.exact_text(told)


def test_the_context_is_counted_per_sequence_and_the_last_empty_one_is_left_out() -> None:
    own = tokenizer("characters")
    tokens = ChatTokens(own, thinking=True)
    reply = encoded(own, "<think>\n" + "x" * 200 + "\n</think>\n\ngo<|im_end|>")
    script = Script(step=[value("one", 0.0), value("y" * 5000, 0.0)])
    trace, prompts = play(tokens, [reply], script)
    assert len(prompts) == 2
    assert len(trace.starts) == 2
    assert [int(part.loss_mask.sum()) for part in trace.sequences()] == [len(reply)] * 2


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize(
    "make", [make_chat_tokenizer, lambda: tokenizer("bpe", qwen_like.REMEMBERS)]
)
def test_a_template_without_the_switch_asked_for_is_refused(make: Any, thinking: bool) -> None:
    with pytest.raises(ConfigError) as caught:
        ChatTokens(make(), thinking=thinking, key="agent.thinking")
    for part in (f"agent.thinking={str(thinking).lower()}", "no switch enable_thinking", "leave"):
        assert part in str(caught.value)
    assert not ChatTokens(make()).has_switch


def test_a_saved_model_folder_keeps_template_and_switch(tmp_path: Path) -> None:
    folder = qwen_like.make_qwen_like_model(tmp_path)
    tokens = ChatTokens.from_folder(folder, thinking=True, key="agent.thinking")
    other = tokens.with_thinking(False, "designer.thinking")
    asked = [ChatTurn("user", "2+2?")]
    wanted = tokens.encode_prompt(asked) + encoded(tokenizer("bpe"), "<think>\n\n</think>\n\n")
    assert other.encode_prompt(asked) == wanted
    assert tokens.stop_token_ids == other.stop_token_ids
