"""Diversity: entropy of skeletons and a Vendi score, against closed forms."""

import math

import numpy as np
import pytest

from spade_async.grounding.diversity import RUN_SAMPLE, Design, Diversity, entropy, vendi


def signatures(num, seed=0, slots=120):
    return np.random.default_rng(seed).integers(0, 2**32, (num, slots), dtype=np.uint32)


def test_entropy_is_zero_for_one_kind_and_the_logarithm_for_equal_ones():
    assert entropy([7]) == 0.0
    assert entropy([3] * 5) == pytest.approx(math.log(5))
    assert entropy([]) == 0.0
    # 3/4 and 1/4: -(0.75 ln 0.75 + 0.25 ln 0.25)
    assert entropy([3, 1]) == pytest.approx(0.5623351446188083)


def test_the_vendi_score_counts_distinct_programs():
    one = signatures(1)
    assert vendi(np.tile(one, (16, 1))) == pytest.approx(1.0)
    assert vendi(np.repeat(signatures(4), 8, axis=0)) == pytest.approx(4.0)
    assert vendi(signatures(32)) == pytest.approx(32.0, rel=1e-3)


def test_two_half_alike_programs_have_the_score_of_their_eigenvalues():
    pair = np.repeat(signatures(1), 2, axis=0)
    pair[1, :60] += 1
    # K = [[1, .5], [.5, 1]]: eigenvalues of K / 2 are 3/4 and 1/4.
    assert vendi(pair) == pytest.approx(math.exp(0.5623351446188083))


def fed(num, kinds, *, window=4, seed=1):
    diversity = Diversity(window, seed)
    rows = signatures(kinds)
    designs = [Design(f"s{i}", f"k{i % kinds}", rows[i % kinds]) for i in range(num)]
    for design in designs:
        diversity.add(design)
    return diversity, designs


def test_the_window_says_nothing_until_it_is_full():
    assert "diversity/skeletons" not in fed(3, 2)[0].metrics()
    found = fed(4, 2)[0].metrics()
    assert found["diversity/skeletons"] == 2.0
    assert found["diversity/skeleton_entropy"] == pytest.approx(math.log(2))
    assert found["diversity/vendi"] == pytest.approx(2.0)
    assert found["diversity/vendi_share"] == pytest.approx(0.5)


def test_the_run_counts_everything_and_the_window_the_last_ones_alone():
    diversity, _ = fed(20, 20, window=4)
    for i in range(4):
        diversity.add(Design(f"same{i}", "same"))
    found = diversity.metrics()
    assert found["diversity/skeletons"] == 1.0
    assert found["diversity/skeleton_entropy"] == 0.0
    assert "diversity/vendi" not in found, "no signature is known of those"
    assert found["diversity/run_skeletons"] == 21.0
    counts = [1] * 20 + [4]
    assert found["diversity/run_skeleton_entropy"] == pytest.approx(entropy(counts))


def test_nothing_at_all_says_nothing():
    assert Diversity(4, 1).metrics() == {}


def test_a_resumed_run_measures_what_it_would_have_measured():
    whole, designs = fed(3 * RUN_SAMPLE, 11, window=8)
    resumed = Diversity(8, 1)
    counts = {f"k{i}": sum(d.skeleton == f"k{i}" for d in designs[:100]) for i in range(11)}
    resumed.restore(counts, designs[92:100], reversed(designs[:100]))
    for design in designs[100:]:
        resumed.add(design)
    assert resumed.metrics() == pytest.approx(whole.metrics())
    assert len(resumed._sample) == RUN_SAMPLE
