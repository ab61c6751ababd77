"""Which learner step a policy version stands for.

A version is (branch, step) and is never reused; its *ordinal* counts the learner steps ever done,
abandoned ones included, so that the age of a token is a difference of ordinals.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spade_async.types import NO_VERSION, PolicyVersion


class VersionBook:
    """Map between policy versions and ordinals, both ways."""

    def __init__(self) -> None:
        self._ordinals: dict[int, int] = {}
        self._newest: dict[int, PolicyVersion] = {}

    def add(self, version: PolicyVersion, ordinal: int) -> None:
        """Register a version; a second version of one ordinal is its alias on a newer branch."""
        known = self._ordinals.get(version.packed)
        assert known is None or known == ordinal, f"version {version} is used twice"
        self._ordinals[version.packed] = ordinal
        self._newest[ordinal] = version

    def ordinal(self, packed: int) -> int | None:
        """Ordinal of a packed version, or None when it was never published by this run."""
        return self._ordinals.get(packed)

    def newest(self, ordinal: int) -> PolicyVersion:
        """The version on the newest branch that stands for an ordinal."""
        return self._newest[ordinal]

    def oldest_ordinal(
        self, versions: NDArray[np.int64], loss_mask: NDArray[np.uint8]
    ) -> int | None:
        """Ordinal of the oldest trained token; None when there is none.

        Tokens of one sample may be of several versions (a swap in flight): the oldest decides.

        Raises:
            KeyError: a token claims a version this run never published.
        """
        trained = np.unique(versions[(loss_mask == 1) & (versions != NO_VERSION)])
        return min((self._ordinals[int(v)] for v in trained), default=None)
