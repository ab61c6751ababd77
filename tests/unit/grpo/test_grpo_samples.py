from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_async.grpo.samples import NonFiniteSample, pack, unpack
from spade_async.types import Role
from tests.support.train_samples import make_batch, make_sample, random_samples


@given(count=st.integers(1, 12), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_unpack_gives_back_what_was_packed(count: int, seed: int) -> None:
    samples = random_samples(count, seed=seed)
    found = unpack(make_batch(samples, step=1))
    assert len(found) == count
    for before, after in zip(samples, found, strict=True):
        assert (before.sample_id, before.role, before.staleness) == (
            after.sample_id,
            after.role,
            after.staleness,
        )
        assert after.advantage == np.float32(before.advantage)
        for name in ("token_ids", "loss_mask", "generator_logprobs", "versions"):
            np.testing.assert_array_equal(getattr(before.trace, name), getattr(after.trace, name))


def test_offsets_and_staleness_range_are_those_of_the_docstring_example() -> None:
    first = make_sample("a", token_ids=(1, 2, 3), loss_mask=(0, 1, 1), staleness=2)
    second = make_sample("b", token_ids=(4, 5), loss_mask=(0, 1), role=Role.DESIGNER)
    fields = pack([first, second])
    assert fields["offsets"].tolist() == [0, 3, 5]
    assert (fields["staleness_min"], fields["staleness_max"]) == (0, 2)
    assert fields["roles"] == ["agent", "designer"]


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (make_sample("x", loss_mask=(1, 0, 1, 1)), r"'x' \(index 1\): loss_mask\[0\] is 1"),
        (make_sample("x", loss_mask=(0, 0, 0, 0)), r"'x' \(index 1\): loss_mask is all 0"),
        (make_sample("x", loss_mask=(0, 0, 2, 1)), r"'x' \(index 1\): loss_mask holds 2"),
        (make_sample("x", token_ids=(5, 6, 7)), r"'x' \(index 1\): loss_mask has length 4"),
        (make_sample("x", token_ids=(5, -6, 7, 8)), r"'x' \(index 1\): negative token id -6"),
        (make_sample("x", version=-1), r"'x' \(index 1\): a trained token has no policy version"),
        (make_sample("x", staleness=-1), r"'x' \(index 1\): staleness -1"),
    ],
)
def test_a_malformed_sample_is_refused_by_name_and_index(sample, message) -> None:
    with pytest.raises(ValueError, match=message):
        pack([make_sample("good"), sample])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_non_finite_logprob_counts_only_on_trained_tokens(bad: float) -> None:
    unpack(make_batch([make_sample("x", logprobs=(bad, bad, -1.0, -1.0))], step=1))
    with pytest.raises(NonFiniteSample, match=r"'x' \(index 0\): generator_logprobs\[3\]"):
        pack([make_sample("x", logprobs=(0.0, 0.0, -1.0, bad))])


def test_a_non_finite_advantage_is_refused() -> None:
    with pytest.raises(NonFiniteSample, match="advantage is nan"):
        pack([make_sample("x", advantage=float("nan"))])


def test_packing_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        pack([])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": np.array([0, 4, 4])}, r"'b' \(index 1\): offsets go from 4 to 4"),
        ({"offsets": np.array([1, 4, 8])}, "offsets start at 1"),
        ({"offsets": np.array([0, 8])}, "offsets has length 2 for 2 samples"),
        ({"offsets": np.array([0, 4, 9])}, "token_ids has length 8, offsets end at 9"),
        ({"roles": ["agent", "referee"]}, r"'b' \(index 1\): unknown role 'referee'"),
        ({"roles": ["agent"]}, "roles has length 1 for 2 samples"),
        ({"advantages": np.zeros(3, np.float32)}, "advantages has length 3"),
        ({"versions": np.zeros(7, np.int64)}, "versions has length 7"),
    ],
)
def test_a_batch_whose_parts_do_not_fit_is_refused(change, message) -> None:
    batch = make_batch([make_sample("a"), make_sample("b")], step=1)
    with pytest.raises(ValueError, match=message):
        unpack(dataclasses.replace(batch, **change))


def test_the_coordinator_can_pack_without_torch() -> None:
    code = "import sys, spade_async.grpo.samples; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
