"""MinHash: a set of features as a short signature, and where to look for those like it.

Two signatures agree in a slot with the probability that is the Jaccard similarity of their sets, so
the share of equal slots estimates it (standard error at 0.9: 0.027). Bands of slots are the keys of
an index: signatures that share a band are candidates. Source: Broder 1997; Leskovec et al., Mining
of Massive Datasets, 3.4.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

SLOTS = 120
BANDS = 10
"""Of 12 slots each: found with probability 1 - (1 - s^12)^10 at similarity s, that is 0.96 at 0.9,
0.9996 at 0.95, 0.022 at 0.6 and 0.002 at 0.5."""

Signature = NDArray[np.int32]
"""[SLOTS]."""

_rng = np.random.default_rng(20260819)
_FACTORS = _rng.integers(0, 2**63, SLOTS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_OFFSETS = _rng.integers(0, 2**63, SLOTS, dtype=np.uint64)


def minhash(features: NDArray[np.uint32]) -> Signature:
    """Signature of a set; of an empty one every slot is -1.

    Args:
        features: hashes of the members.
    """
    if not len(features):
        return np.full(SLOTS, -1, np.int32)
    mixed_FK = features.astype(np.uint64)[:, None] * _FACTORS + _OFFSETS
    mixed_FK ^= mixed_FK >> np.uint64(29)
    mixed_FK *= np.uint64(0x9E3779B97F4A7C15)
    slots_K: Signature = (mixed_FK.min(axis=0) >> np.uint64(32)).astype(np.uint32).view(np.int32)
    return slots_K


def similarity(one: Signature, other: Signature) -> float:
    """Estimated Jaccard similarity in [0, 1]."""
    return float(np.mean(one == other))


def band_keys(signature: Signature) -> list[int]:
    """One 63-bit key per band; those of two signatures are equal where the band is."""
    raw = np.ascontiguousarray(signature, np.int32).tobytes()
    size = len(raw) // BANDS
    keys = []
    for band in range(BANDS):
        part = raw[band * size : (band + 1) * size]
        digest = hashlib.blake2b(part, digest_size=8, salt=bytes([band])).digest()
        keys.append(int.from_bytes(digest, "little") >> 1)
    return keys
