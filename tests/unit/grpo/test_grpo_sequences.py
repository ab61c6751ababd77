"""A sample of several token sequences: fanned out for the learner, one sample for everyone else."""

from __future__ import annotations

import numpy as np
import pytest

from spade_async.coordinator.tags import tag_problem, without_tokens
from spade_async.coordinator.versions import VersionBook
from spade_async.grpo.batch import Normaliser
from spade_async.grpo.samples import TrainSample, pack, sequences, unpack, whole_ids
from spade_async.ledger.traces import pack_trace, unpack_trace
from spade_async.transport.messages import EpisodeResult, TrainingBatch
from spade_async.types import NO_VERSION, PolicyVersion, Role, TokenTrace

VERSION = PolicyVersion(0, 0)
MASK = [*(0, 0, 1, 1), *(0, 0, 0, 1), *(0, 1, 1)]
STARTS = (0, 4, 8)


def trace(mask: list[int] = MASK, starts: tuple[int, ...] = STARTS) -> TokenTrace:
    sampled = np.asarray(mask, np.uint8)
    return TokenTrace(
        np.arange(len(mask), dtype=np.int32),
        sampled,
        np.where(sampled == 1, -0.5 * np.arange(len(mask)), 0.0).astype(np.float32),
        np.where(sampled == 1, VERSION.packed, NO_VERSION).astype(np.int64),
        starts,
    )


def sample(**more: object) -> TrainSample:
    fields = {"sample_id": "d-1.0.play.no_hint.3", "role": Role.AGENT, "advantage": 0.625,
              "staleness": 2, "trace": trace(), "group": 4}  # fmt: skip
    return TrainSample(**(fields | more))  # type: ignore[arg-type]


def test_each_turn_is_trained_with_the_whole_advantage_of_its_episode() -> None:
    parts = sequences(sample())
    assert [p.trace.token_ids.tolist() for p in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert [p.trace.loss_mask.tolist() for p in parts] == [[0, 0, 1, 1], [0, 0, 0, 1], [0, 1, 1]]
    assert {(p.advantage, p.staleness, p.group, p.role) for p in parts} == {
        (0.625, 2, 4, Role.AGENT)
    }
    assert [p.trace.generator_logprobs.tolist() for p in parts][1] == [0, 0, 0, -3.5]
    assert whole_ids(p.sample_id for p in parts) == ["d-1.0.play.no_hint.3"]
    assert len({p.sample_id for p in parts}) == 3


def test_one_sequence_stays_the_sample_itself() -> None:
    whole = sample(trace=trace(starts=()))
    assert sequences(whole) == [whole]
    assert whole_ids(["b", "a", "b#1", "c#0", "c#1"]) == ["b", "a", "c"]


def test_an_episode_weighs_what_its_tokens_weigh() -> None:
    """The denominators of the loss do not see how an episode's tokens are spread."""
    whole, spread = sample(trace=trace(starts=())), sequences(sample())
    assert Normaliser.of(spread) == Normaliser.of([whole]) == Normaliser(5, 0)


def test_sequences_travel_to_the_learner_and_back() -> None:
    batch = TrainingBatch(branch=0, step=1, checkpoint=False, **pack(sequences(sample())))
    found = unpack(batch)
    assert [s.trace.token_ids.tolist() for s in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert batch.groups == [4, 4, 4]


@pytest.mark.parametrize("starts", [(), STARTS])
def test_a_trace_is_stored_with_its_sequences(starts: tuple[int, ...]) -> None:
    stored = pack_trace(trace(starts=starts))
    found = unpack_trace(stored)
    assert found.starts == starts
    assert found.token_ids.tolist() == trace().token_ids.tolist()
    assert stored[:4] == (b"TRC2" if starts else b"TRC1")


def test_damaged_starts_are_noticed() -> None:
    stored = bytearray(pack_trace(trace()))
    for place in (12, 16, 20):
        damaged = bytearray(stored)
        damaged[place] ^= 0x41
        with pytest.raises(ValueError, match=r"checksum|unpack|requires|decompress|zlib|Error"):
            unpack_trace(bytes(damaged))


def result(starts: list[int], mask: list[int] = MASK) -> EpisodeResult:
    made = trace(mask, ())
    return EpisodeResult(
        task_id="t", group_id="g", environment_id="e", arm="no_hint", index=0, seed=1,
        purpose="train", outcome="finished", detail="", episode_return=1.0, missing_reason=None,
        num_turns=3, transcript=[], observation="", hint_text=None, jail={}, starts=starts,
        token_ids=made.token_ids, loss_mask=made.loss_mask,
        generator_logprobs=made.generator_logprobs, versions=made.versions,
    )  # fmt: skip


@pytest.mark.parametrize("starts", [[0, 4], [0, 4, 8], [], [0]])
def test_good_starts_are_taken(starts: list[int]) -> None:
    versions = VersionBook()
    versions.add(VERSION, 0)
    assert tag_problem(versions, result(starts), VERSION.packed) is None


@pytest.mark.parametrize(
    ("starts", "mask", "words"),
    [
        ([1, 4], MASK, "sequences begin"),
        ([0, 8, 4], MASK, "sequences begin"),
        ([0, 4, 11], MASK, "sequences begin"),
        ([0, 4, 4], MASK, "sequences begin"),
        ([0, 3], MASK, "the sequence at 3 has no prompt"),
        ([0, 4, 8], [0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1], "the sequence at 4 has no prompt or"),
    ],
)
def test_starts_that_cannot_be_right_make_the_sample_missing(
    starts: list[int], mask: list[int], words: str
) -> None:
    versions = VersionBook()
    versions.add(VERSION, 0)
    bad = result(starts, mask)
    problem = tag_problem(versions, bad, VERSION.packed)
    assert problem is not None
    assert words in problem
    gone = without_tokens(bad, problem)
    assert (gone.starts, gone.episode_return) == ([], None)
