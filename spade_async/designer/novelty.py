"""Which shapes of programs the designer repeats: the share it pays for, the quota it cannot pass.

A skeleton is the digest of a program's shape with literals removed (`Environment.skeleton`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence


class SkeletonWindow:
    """Skeletons of the last `size` valid designs. Ask `share` first, then `add`."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"designer.novelty_window={size}: must be at least 1")
        self._size = size
        self._recent: deque[str] = deque()
        self._counts: Counter[str] = Counter()

    def share(self, skeleton: str) -> float:
        """Designs of that skeleton in the window / its size, in [0, 1].

        A window that is not full yet counts as filled up with other skeletons, so that the second
        design of a run is not charged as if it were one of a monoculture.
        """
        return self._counts[skeleton] / self._size

    def add(self, skeleton: str) -> None:
        """Note one design; the oldest one leaves a full window."""
        self._recent.append(skeleton)
        self._counts[skeleton] += 1
        if len(self._recent) > self._size:
            oldest = self._recent.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]

    def state(self) -> list[str]:
        """The window, oldest first; JSON-able, for the ledger."""
        return list(self._recent)

    def restore(self, state: Sequence[str]) -> None:
        """Inverse of `state`; of a longer window the newest are kept."""
        self._recent.clear()
        self._counts.clear()
        for skeleton in state:
            self.add(skeleton)


class SkeletonQuota:
    """Lets at most `limit` designs of one skeleton be played among any `window` designs in a row.

    A limit of 0 is none: every valid design is played.
    `window` is the designs of one step (groups_per_step * group_size). Call exactly one of `admit`
    and `skip` per design.
    """

    def __init__(self, *, limit: int, window: int) -> None:
        if limit < 0 or window < 1:
            raise ValueError(
                f"plays_per_skeleton={limit}, window={window}: must be at least 0 and 1"
            )
        self._limit = limit
        self._window = window
        self._recent: deque[str | None] = deque(maxlen=window)

    def admit(self, skeleton: str) -> bool:
        """Whether this valid design is played; a refused one is `reward.Unplayed`."""
        others = list(self._recent)[-(self._window - 1) :] if self._window > 1 else []
        is_admitted = not self._limit or others.count(skeleton) < self._limit
        self._recent.append(skeleton if is_admitted else None)
        return is_admitted

    def skip(self) -> None:
        """Note a design that cannot be played (rejected or missing)."""
        self._recent.append(None)

    def state(self) -> list[str | None]:
        """Skeletons of the played among the last designs, oldest first; JSON-able."""
        return list(self._recent)

    def restore(self, state: Sequence[str | None]) -> None:
        """Inverse of `state`."""
        self._recent.clear()
        self._recent.extend(state)
