"""Chosen experts on their way from an engine's reply to the learner's tensors."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from spade_async.agent.trace import TraceBuilder
from spade_async.coordinator.tags import tag_problem, trace_of, without_tokens
from spade_async.coordinator.versions import VersionBook
from spade_async.engine.protocol import Generation
from spade_async.grpo.batch import build_micro_batch
from spade_async.grpo.samples import TrainSample, pack, sequences, unpack
from spade_async.learner.quarantine import read_back, set_aside
from spade_async.ledger.traces import pack_trace, unpack_trace
from spade_async.transport.codec import Envelope, decode, encode
from spade_async.transport.experts import sent_experts
from spade_async.transport.messages import EpisodeResult, TrainingBatch
from spade_async.types import NO_EXPERT, PolicyVersion, Role, TokenTrace
from tests.support.train_samples import make_sample

VERSION = PolicyVersion(0, 0)
ROUTERS, CHOSEN = 3, 2


def told(num_read: int, value: int) -> NDArray[np.int16]:
    return np.full((num_read, ROUTERS, CHOSEN), value, np.int16)


def reply(tokens: list[int], experts: NDArray[np.int16] | None) -> Generation:
    num = len(tokens)
    return Generation(
        np.asarray(tokens, np.int32),
        np.full(num, -1.0, np.float32),
        np.full(num, VERSION.packed, np.int64),
        "stop",
        experts=experts,
    )


def two_turns() -> TokenTrace:
    """Prompt of 3, reply of 2, observation of 2, reply of 2: the second request reads 8 tokens."""
    builder = TraceBuilder([1, 2, 3])
    builder.add_sampled(reply([4, 5], told(4, 10)))
    builder.add_given([6, 7])
    builder.add_sampled(reply([8, 9], told(8, 20)))
    return builder.build()


def values(trace: TokenTrace) -> list[int]:
    assert trace.experts is not None
    assert trace.experts.shape[1:] == (ROUTERS, CHOSEN)
    return [int(v) for v in trace.experts[:, 0, 0]]


def test_tokens_keep_the_experts_they_were_sampled_behind() -> None:
    # 5 was not read before the second request; the last token is never read.
    assert values(two_turns()) == [10] * 4 + [20] * 4 + [NO_EXPERT]


def test_each_sequence_has_experts_of_its_own() -> None:
    builder = TraceBuilder([1, 2])
    builder.add_sampled(reply([3], told(2, 10)))
    builder.begin([4, 5, 6])
    builder.add_sampled(reply([7], None))
    builder.begin([8])
    builder.add_sampled(reply([9, 9], told(2, 30)))
    trace = builder.build()
    assert values(trace) == [10, 10, *[NO_EXPERT] * 5, 30, 30, NO_EXPERT]
    parts = trace.sequences()
    assert [values(part) for part in parts] == [
        [10, 10, NO_EXPERT],
        [NO_EXPERT] * 4,
        [30, 30, NO_EXPERT],
    ]


def test_an_engine_that_says_nothing_leaves_nothing() -> None:
    builder = TraceBuilder([1, 2])
    builder.add_sampled(reply([3], None))
    assert builder.build().experts is None


def result(trace: TokenTrace) -> EpisodeResult:
    assert trace.experts is not None
    return EpisodeResult(
        task_id="t", group_id="g", environment_id="e", arm="no_hint", index=0, seed=1,
        purpose="train", outcome="finished", detail="", episode_return=1.0, missing_reason=None,
        num_turns=2, transcript=[], observation="", hint_text=None, jail={},
        token_ids=trace.token_ids, loss_mask=trace.loss_mask,
        generator_logprobs=trace.generator_logprobs, versions=trace.versions,
        experts=trace.experts,
    )  # fmt: skip


def test_they_travel_are_stored_and_become_the_learners_tensor(tmp_path: Path) -> None:
    trace = two_turns()
    envelope = decode(encode(Envelope("i", result(trace), 1), 1 << 20), 1 << 20)
    assert isinstance(envelope.message, EpisodeResult)
    versions = VersionBook()
    versions.add(VERSION, 0)
    assert tag_problem(versions, envelope.message, VERSION.packed) is None
    stored = unpack_trace(pack_trace(trace_of(envelope.message)))
    assert values(stored) == values(trace)

    with_them = TrainSample("a", Role.AGENT, 1.0, 0, stored)
    batch = TrainingBatch(branch=0, step=1, checkpoint=False, **pack([make_sample("b"), with_them]))
    found = unpack(batch)
    assert values(found[0].trace) == [NO_EXPERT] * 4
    assert values(found[1].trace) == values(trace)
    set_aside(tmp_path, batch, "for the test", {}, "0.0")
    assert read_back(tmp_path / "batch-0-1.npz").experts.tolist() == batch.experts.tolist()

    micro = build_micro_batch(found, {role: 1.0 for role in Role})
    assert micro.experts is not None
    # Inputs are all tokens before the last trained one: 3 of "b", padded, and 8 of "a".
    assert micro.experts[:, :, 0, 0].tolist() == [[NO_EXPERT] * 8, [10] * 4 + [20] * 4]


def test_traces_with_sequences_and_experts_are_stored_and_damage_is_seen() -> None:
    trace = dataclasses.replace(two_turns(), starts=(0, 5))
    stored = pack_trace(trace)
    found = unpack_trace(stored)
    assert (found.starts, values(found)) == ((0, 5), values(trace))
    assert len(sequences(TrainSample("a", Role.AGENT, 1.0, 0, found))) == 2
    for at in range(len(stored)):
        damaged = stored[:at] + bytes([stored[at] ^ 0x5A]) + stored[at + 1 :]
        # A few bits of a compressed stream mean nothing; no other damage passes.
        with contextlib.suppress(ValueError):
            assert pack_trace(unpack_trace(damaged)) == stored
        with pytest.raises(ValueError, match=r".+"):
            unpack_trace(stored[:at])


@pytest.mark.parametrize(
    ("experts", "words"),
    [
        (told(8, 1), r"experts of shape \(8, 3, 2\) for 9 tokens"),
        (told(9, 1)[:, 0], r"experts of shape \(9, 2\) for 9 tokens"),
        (told(9, NO_EXPERT - 1), "expert -2"),
    ],
)
def test_a_result_with_wrong_experts_is_missing(experts: NDArray[np.int16], words: str) -> None:
    versions = VersionBook()
    versions.add(VERSION, 0)
    wrong = dataclasses.replace(result(two_turns()), experts=experts)
    problem = tag_problem(versions, wrong, VERSION.packed)
    assert problem is not None
    assert problem in words.replace("\\", "")
    assert not without_tokens(wrong, problem).experts.size


def test_samples_of_different_models_are_refused_by_name() -> None:
    first = TrainSample("a", Role.AGENT, 1.0, 0, two_turns())
    other = dataclasses.replace(first.trace, experts=told(9, 1)[:, :2])
    with pytest.raises(ValueError, match=r"'a' \(3, 2\) and 'b' \(2, 2\)"):
        pack([first, dataclasses.replace(first, sample_id="b", trace=other)])


def test_what_takes_more_than_half_a_message_is_left_out_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    experts = told(9, 1)
    assert sent_experts(experts, 2 * experts.nbytes, "episode t") is experts
    with caplog.at_level(logging.WARNING):
        assert not sent_experts(experts, 2 * experts.nbytes - 1, "episode t").size
    assert "episode t" in caplog.text
    assert "link.max_message_bytes" in caplog.text
    assert not sent_experts(None, 1 << 20, "episode t").size
