"""MinHash against exact similarities."""

import numpy as np
import pytest

from spade_async.grounding.signature import BANDS, SLOTS, band_keys, minhash, similarity


def features(start, stop, seed=3):
    """Numbers start..stop of one fixed random sequence."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**32, 4000, dtype=np.uint32)[start:stop]


@pytest.mark.parametrize("shared", [0, 500, 900, 990])
def test_the_share_of_equal_slots_estimates_the_jaccard_similarity(shared):
    exact = shared / (2000 - shared)
    errors = []
    for seed in range(12):
        one = minhash(features(0, 1000, seed))
        other = minhash(features(1000 - shared, 2000 - shared, seed))
        errors.append(similarity(one, other) - exact)
    # The standard error of a mean of 12 is at most sqrt(.25 / (12 * 120)) = 0.013.
    assert abs(np.mean(errors)) < 0.05
    assert np.abs(errors).max() < 0.2


def test_order_and_repeats_do_not_matter():
    some = features(0, 50)
    assert np.array_equal(minhash(some), minhash(np.concatenate([some[::-1], some[:9]])))


def test_an_empty_set_is_like_itself_alone():
    empty = minhash(np.zeros(0, np.uint32))
    assert similarity(empty, empty) == 1.0
    assert similarity(empty, minhash(features(0, 9))) == 0.0


def test_near_copies_share_a_band_and_distant_ones_do_not():
    one = minhash(features(0, 1000))
    near, far = minhash(features(25, 1025)), minhash(features(400, 1400))
    assert len(one) == SLOTS
    assert len(set(band_keys(one))) == BANDS
    assert set(band_keys(one)) & set(band_keys(near))
    assert not set(band_keys(one)) & set(band_keys(far))
    assert all(0 <= key < 2**63 for key in band_keys(one))
