"""How many kinds of programs the designer writes: skeletons, their entropy, a Vendi score.

Measured over the last valid designs and over the run; decides nothing. The kernel of the Vendi
score is the share of equal slots of two MinHash signatures (`shape.py`), an unbiased estimate of
the Jaccard similarity of their AST features. Each slot is an indicator of equality, so the matrix
is positive semi-definite without any repair. Source: Friedman and Dieng, The Vendi Score
(exp of the entropy of the eigenvalues of K / n).
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spade_async.grounding.signature import Signature
from spade_async.seeds import derive

RUN_SAMPLE = 64
"""Designs of the run that its Vendi score is taken over: a uniform sample, the same on a resume."""


@dataclass(frozen=True, slots=True)
class Design:
    """One valid design as far as diversity goes."""

    sample_id: str
    skeleton: str
    signature: Signature | None = None
    """MinHash of its AST features; None when they are not known."""


Row = TypeVar("Row", bound=tuple[Any, ...])


class Diversity:
    """Counts designs one by one; `metrics` is what there is to say about them."""

    def __init__(self, window: int, seed: int) -> None:
        """Nothing is counted yet.

        Args:
            window: the last so many designs are "now".
            seed: of the run; draws the sample of the run's Vendi score.
        """
        self.window = window
        self._seed = seed
        self._recent: deque[Design] = deque(maxlen=window)
        self._counts: Counter[str] = Counter()
        self._sum_c_log_c = 0.0
        self._num_designs = 0
        self._sample: list[tuple[int, str, Design]] = []
        """Heap of (-priority, id, design): the designs of the run with the smallest priorities."""
        self._run_vendi: float | None = None
        self._is_stale = False

    def add(self, design: Design) -> None:
        """Count one valid design."""
        self._recent.append(design)
        self._count(design.skeleton, 1)
        is_wanted = len(self._sample) < RUN_SAMPLE or (
            -self._priority(design.sample_id) > self._sample[0][0]
        )
        if design.signature is not None and is_wanted:
            entry = (-self._priority(design.sample_id), design.sample_id, design)
            if len(self._sample) < RUN_SAMPLE:
                heapq.heappush(self._sample, entry)
            else:
                heapq.heapreplace(self._sample, entry)
            self._is_stale = True

    def sample_of(self, designs: Iterable[Row]) -> list[Row]:
        """Of all designs of a run those that may be in its sample; their first item is their id.

        Twice the sample, as some may have no signature.
        """
        return heapq.nsmallest(2 * RUN_SAMPLE, designs, key=lambda row: self._priority(row[0]))

    def restore(
        self, counts: Mapping[str, int], recent: Iterable[Design], sampled: Iterable[Design]
    ) -> None:
        """Take up what an earlier process counted.

        Args:
            counts: designs of the run by skeleton, `recent` included.
            recent: the last designs, oldest first.
            sampled: designs of the run that may be in its sample; order does not matter.
        """
        for design in sampled:
            self.add(design)
        self._recent.clear()
        self._recent.extend(recent)
        self._counts.clear()
        self._sum_c_log_c, self._num_designs = 0.0, 0
        for skeleton, count in counts.items():
            self._count(skeleton, count)

    def metrics(self) -> dict[str, float]:
        """Tagged numbers; those of the window are absent until it is full."""
        found: dict[str, float | None] = {}
        if len(self._recent) == self.window:
            counts = Counter(design.skeleton for design in self._recent)
            found["diversity/skeletons"] = float(len(counts))
            found["diversity/skeleton_entropy"] = entropy(counts.values())
            known = [d.signature for d in self._recent if d.signature is not None]
            if 2 * len(known) > self.window:
                score = vendi(np.stack(known))
                found |= {"diversity/vendi": score, "diversity/vendi_share": score / len(known)}
        if self._num_designs:
            total = self._num_designs
            found["diversity/run_skeletons"] = float(len(self._counts))
            found["diversity/run_skeleton_entropy"] = max(
                0.0, math.log(total) - self._sum_c_log_c / total
            )
        if self._is_stale and len(self._sample) > 1:
            known = [d.signature for _, _, d in self._sample if d.signature is not None]
            self._run_vendi, self._is_stale = vendi(np.stack(known)), False
        found["diversity/run_vendi"] = self._run_vendi
        return {tag: value for tag, value in found.items() if value is not None}

    def _count(self, skeleton: str, more: int) -> None:
        before = self._counts[skeleton]
        now = self._counts[skeleton] = before + more
        self._num_designs += more
        self._sum_c_log_c += now * math.log(now) - (before * math.log(before) if before else 0.0)

    def _priority(self, sample_id: str) -> int:
        return derive(self._seed, "diversity", sample_id)


def entropy(counts: Iterable[int]) -> float:
    """Shannon entropy in nats of counted kinds; 0 for one kind, ln(n) for n equally often."""
    items = [count for count in counts if count]
    total = sum(items)
    return max(0.0, -sum(c / total * math.log(c / total) for c in items)) if total else 0.0


def vendi(signatures_NK: NDArray[np.int32]) -> float:
    """Effective number of distinct programs among N, in [1, N].

    Args:
        signatures_NK: N signatures of K slots.
    """
    num, slots = signatures_NK.shape
    same_NN = np.zeros((num, num), np.float64)
    for slot_N in signatures_NK.T:
        same_NN += slot_N[:, None] == slot_N[None, :]
    eigenvalues_N = np.linalg.eigvalsh(same_NN / (slots * num))
    positive = eigenvalues_N[eigenvalues_N > 1e-12]
    return float(np.exp(-(positive * np.log(positive)).sum()))
