"""Which learner step a policy version stands for.

A version is (branch, step) and is never reused; its *ordinal* counts the learner steps ever done,
abandoned ones included, so that the age of a token is a difference of ordinals. Within a branch
both count on together, so a branch is remembered by where it began and how far it came: what is
known does not grow with the steps of a run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spade_async.types import NO_VERSION, PolicyVersion


@dataclass(slots=True)
class _Stretch:
    """Versions of one branch whose steps and ordinals follow each other."""

    branch: int
    step: int
    """Of the first."""
    ordinal: int
    """Of the first."""
    length: int = 1


class VersionBook:
    """Map between policy versions and ordinals, both ways."""

    def __init__(self) -> None:
        self._stretches: list[_Stretch] = []
        """In the order in which they were begun."""

    def add(self, version: PolicyVersion, ordinal: int) -> None:
        """Register a version; a second version of one ordinal is its alias on a newer branch."""
        known = self.ordinal(version.packed)
        assert known is None or known == ordinal, f"version {version} is used twice"
        if known is not None:
            return
        for last in reversed(self._stretches):
            if last.branch == version.branch:
                is_next = version.step == last.step + last.length
                if is_next and ordinal == last.ordinal + last.length:
                    last.length += 1
                    return
                break
        self._stretches.append(_Stretch(version.branch, version.step, ordinal))

    def ordinal(self, packed: int) -> int | None:
        """Ordinal of a packed version, or None when it was never published by this run."""
        branch, step = PolicyVersion.unpack(packed)
        for stretch in reversed(self._stretches):
            at = step - stretch.step
            if stretch.branch == branch and 0 <= at < stretch.length:
                return stretch.ordinal + at
        return None

    def newest(self, ordinal: int) -> PolicyVersion:
        """The version on the newest branch that stands for an ordinal.

        Raises:
            KeyError: none does.
        """
        for stretch in sorted(self._stretches, key=lambda s: s.branch, reverse=True):
            at = ordinal - stretch.ordinal
            if 0 <= at < stretch.length:
                return PolicyVersion(stretch.branch, stretch.step + at)
        raise KeyError(ordinal)

    @property
    def num_stretches(self) -> int:
        """What it remembers: about one per branch, however many steps were done."""
        return len(self._stretches)

    def oldest_ordinal(
        self, versions: NDArray[np.int64], loss_mask: NDArray[np.uint8]
    ) -> int | None:
        """Ordinal of the oldest trained token; None when there is none.

        Tokens of one sample may be of several versions (a swap in flight): the oldest decides.

        Raises:
            KeyError: a token claims a version this run never published.
        """
        trained = np.unique(versions[(loss_mask == 1) & (versions != NO_VERSION)]).tolist()
        return min(map(self._known, trained), default=None)

    def _known(self, packed: int) -> int:
        ordinal = self.ordinal(packed)
        if ordinal is None:
            raise KeyError(packed)
        return ordinal
