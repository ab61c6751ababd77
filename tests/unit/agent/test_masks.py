"""Masks lie on exactly what the sampler emitted, and text of an environment is only ever text.

Properties over observations with role markers, marks of thinking, odd white space, emoji and lone
surrogates, and over replies of arbitrary ids, with a byte-level BPE and a character tokenizer.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_async.agent.episode import Play, Player, PlayLimits, play_episode
from spade_async.designer import games
from spade_async.domain import ChatTurn
from spade_async.engine.protocol import Generation, Sampling
from spade_async.engine.scripted import ScriptedEngine
from spade_async.engine.tokens import ChatTokens
from spade_async.types import NO_VERSION, Arm, PolicyVersion, TokenTrace
from tests.support import qwen_like
from tests.support.fake_jail import FakeJail, Script, value

MARKERS = (
    "<|im_end|>", "<|im_start|>system\n", "<|im_start|>", "<|endoftext|>", "<think>", "</think>",
    "<tool_call>", "<tool_response>", "<|end|>", "<pad>", "<unk>", "\ue0000\ue001", "\ue000", "{{",
    "{% raw %}", "<|im_", "end|>", "assistant\n",
)  # fmt: skip
ODD = ("\n", "\r\n", "  ", "\t", " \n ", "\u00a0", "\u2028", "\x00", "\x0b", "\ufeff", "e\u0301")
OTHER = (
    "🙂", "👩\u200d👩\u200d👧", "\ud800", "\udfff x", "🇩🇪", "שלום", "\ufb01", "\u212b", "\u212a",
    "a", "door 7", "\\boxed{1}",
)  # fmt: skip
TEXT = st.lists(
    st.one_of(
        st.sampled_from(MARKERS), st.sampled_from(ODD), st.sampled_from(OTHER),
        st.text(st.characters(codec=None), max_size=8),
    ),
    max_size=8,
).map("".join)  # fmt: skip
KINDS = {"bpe": qwen_like.make_bpe_tokenizer, "characters": qwen_like.make_character_tokenizer}
TOKENIZERS = {kind: make() for kind, make in KINDS.items()}
CODECS = {(kind, t): ChatTokens(own, thinking=t)
          for kind, own in TOKENIZERS.items() for t in (True, False)}  # fmt: skip
CONTROL = (*qwen_like.SPECIAL, *qwen_like.ADDED, "<|end|>", "<pad>")
LIMITS = PlayLimits(max_turns=4, max_new_tokens=40, max_context_tokens=100_000, temperature=1.0)
BOTH = pytest.mark.parametrize("kind", KINDS)
MODES = pytest.mark.parametrize("thinking", [True, False])


def control_ids(kind: str, ids: list[int]) -> list[int]:
    """The control tokens among ids, in order."""
    own = TOKENIZERS[kind]
    found = {own.convert_tokens_to_ids(t) for t in CONTROL} - {None, own.unk_token_id}
    return [token for token in ids if token in found]


def shown(kind: str, text: str) -> str:
    """How a tokenizer gives back a text: lone surrogates are a "?", and composed forms."""
    own = TOKENIZERS[kind]
    plain = text.encode("utf-8", "replace").decode("utf-8")
    normaliser = own.backend_tokenizer.normalizer
    return plain if normaliser is None else str(normaliser.normalize_str(plain))


@BOTH
@MODES
@settings(max_examples=80, deadline=None)
@given(text=TEXT)
def test_text_of_an_environment_never_becomes_a_control_token(
    kind: str, thinking: bool, text: str
) -> None:
    tokens = CODECS[kind, thinking]
    honest = [ChatTurn("user", "a door")]
    turns = [ChatTurn("user", text)]
    prompt, fragment = tokens.encode_prompt(turns), tokens.encode_turn(turns, after_stop=True)
    assert control_ids(kind, prompt) == control_ids(kind, tokens.encode_prompt(honest))
    plain = tokens.encode_turn(honest, after_stop=True)
    assert control_ids(kind, fragment) == control_ids(kind, plain)
    if kind == "bpe":
        # Bytes can say everything: what the environment said arrives, markers spelled out.
        assert shown(kind, text) in tokens.exact_text(prompt)
        assert shown(kind, text) in tokens.exact_text(fragment)


REPLY = st.lists(st.integers(0, 10**6), min_size=1, max_size=30)


@BOTH
@MODES
@settings(max_examples=40, deadline=None)
@given(
    observations=st.lists(TEXT, min_size=4, max_size=4),
    replies=st.lists(REPLY, min_size=4, max_size=4),
    thinks=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_masks_lie_on_what_was_sampled_byte_for_byte(
    kind: str, thinking: bool, observations: list[str], replies: list[list[int]], thinks: list[bool]
) -> None:
    """Replies are arbitrary ids, control tokens included, some of them behind a thought."""
    own, tokens = TOKENIZERS[kind], CODECS[kind, thinking]
    stops = tokens.stop_token_ids
    thought = own("<think>\nhm\n</think>\n\n", add_special_tokens=False)["input_ids"]
    said = []
    for thinks_now, reply in zip(thinks, replies, strict=True):
        ids = [token % len(own) for token in reply]
        kept = [token for token in ids if token not in stops]
        said.append([*(thought if thinks_now else []), *kept, stops[0]])
    trace, emitted, prompts = episode(tokens, said, observations)
    assert [int(t) for t in trace.token_ids[trace.loss_mask == 1]] == list(chain(*said))
    assert trace.generator_logprobs[trace.loss_mask == 1].tolist() == emitted
    assert not trace.generator_logprobs[trace.loss_mask == 0].any()
    assert set(trace.versions[trace.loss_mask == 0].tolist()) == {NO_VERSION}
    assert set(trace.versions[trace.loss_mask == 1].tolist()) == {PolicyVersion(1, 2).packed}
    # Each reply lies behind exactly the prompt that the engine was given, within one sequence.
    turn = 0
    for part in trace.sequences():
        ids, mask = part.token_ids.tolist(), part.loss_mask.tolist()
        assert mask[0] == 0
        while turn < len(said) and ids[: len(prompts[turn])] == prompts[turn]:
            end = len(prompts[turn]) + len(said[turn])
            assert mask[len(prompts[turn]) : end] == [1] * len(said[turn])
            turn += 1
            if turn < len(said) and len(prompts[turn]) <= end:
                break
        assert sum(mask) > 0
    assert turn == len(said)


def episode(
    tokens: ChatTokens, said: list[list[int]], observations: list[str]
) -> tuple[TokenTrace, list[float], list[list[int]]]:
    """Trace, log-probabilities as emitted, and the prompts of an episode with those replies."""
    emitted: list[float] = []

    class Engine(ScriptedEngine):
        async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Generation:
            found = await super().generate(prompt_ids, sampling)
            logprobs = -np.arange(1, len(found.token_ids) + 1, dtype=np.float32) / 64
            emitted.extend(logprobs.tolist())
            return Generation(found.token_ids, logprobs, found.versions, found.finish_reason)

    async def run() -> tuple[TokenTrace, list[list[int]]]:
        engine = Engine(said, version=PolicyVersion(1, 2))
        steps = [value(text, 0.0) for text in observations[1:]] + [value("end", 1.0, end=True)]
        script = Script(reset=value(observations[0]), step=steps)
        player: Any = Player(engine, tokens, FakeJail(script), games)
        instance = Play("e", "class AEnv: pass", "none", "", Arm.NO_HINT, 7, 99)
        made = (await play_episode(player, instance, LIMITS)).episode
        assert made.trace is not None, made
        return made.trace, engine.prompts

    trace, prompts = asyncio.run(run())
    return trace, emitted, prompts
