"""How varied the newest valid designs are, and how often their hints are answers. Pure.

A quantity that is not known (no label, no leak check, a window that is not full) is None, never 0.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Variety:
    """Figures of one full window of designs."""

    skeleton_entropy: float
    """Nats; 0 when all have one skeleton, log(window) when all differ."""
    skeleton_share: float
    """Share of the most frequent skeleton."""
    family_share: float | None
    """Share of the most frequent family among designs that have one; None when none has."""
    family: str | None
    """Its name."""
    leak_share: float | None
    """Mean share of seeds on which the hint alone is the answer; None when it is not measured."""

    @property
    def effective_skeletons(self) -> float:
        """exp(entropy): as many equally frequent skeletons have the same entropy."""
        return math.exp(self.skeleton_entropy)


class VarietyWindow:
    """The newest `size` valid designs."""

    def __init__(self, size: int) -> None:
        self._designs: deque[tuple[str, str | None, float | None]] = deque(maxlen=size)

    def add(self, skeleton: str, family: str | None, leak_share: float | None) -> None:
        """Note one valid design."""
        self._designs.append((skeleton, family, leak_share))

    def figures(self) -> Variety | None:
        """Figures of the window; None until it is full."""
        if len(self._designs) < (self._designs.maxlen or 0):
            return None
        skeletons = Counter(skeleton for skeleton, _, _ in self._designs)
        families = Counter(family for _, family, _ in self._designs if family is not None)
        leaks = [leak for _, _, leak in self._designs if leak is not None]
        family, most = families.most_common(1)[0] if families else (None, 0)
        return Variety(
            skeleton_entropy=entropy(skeletons.values()),
            skeleton_share=max(skeletons.values()) / skeletons.total(),
            family_share=most / families.total() if families else None,
            family=family,
            leak_share=sum(leaks) / len(leaks) if leaks else None,
        )

    def state(self) -> list[list[Any]]:
        """Oldest first; JSON-able, for the ledger."""
        return [list(design) for design in self._designs]

    def restore(self, state: Iterable[Iterable[Any]]) -> None:
        """Inverse of `state`; of a longer window the newest are kept."""
        self._designs.clear()
        for skeleton, family, leak_share in state:
            self.add(skeleton, family, leak_share)


def entropy(counts: Iterable[int]) -> float:
    """Entropy in nats of a distribution given by positive counts."""
    known = [count for count in counts if count > 0]
    total = sum(known)
    # max: one value alone has -0.0 or a rounding error below it.
    return max(0.0, -sum(n / total * math.log(n / total) for n in known))


def variety_state(variety: Variety | None) -> dict[str, Any] | None:
    """JSON-able, for the ledger."""
    return None if variety is None else asdict(variety)


def variety_of(state: dict[str, Any] | None) -> Variety | None:
    """Inverse of `variety_state`."""
    return None if state is None else Variety(**state)
