"""Hint-based regret: the agent's mean return with the hint minus its return without.

    raw = (mean over complete pairs of return with hint - return without) * (1 - leak share)

Computed by `spade_async.regret` from pairs on the same seeds under the same policy version; a later
offset adds nothing to it. The sign is kept: a hint that harms is a worse hint. Source: SPADE (arXiv
2608.19197), whose code takes unpaired means, fills a missing hint with 0 and floors at 0. The
default: it pays for what can be done and is not yet done. Where hints mislead, see learning
potential.
"""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.designer.rewards.facts import Baselines, Facts, Raw, missing


@dataclass(frozen=True, slots=True)
class Regret:
    """The paired regret as it is."""

    name: str = "regret"
    fewest_offsets: int = 1

    def raw(self, facts: Facts, baselines: Baselines) -> Raw:
        """Missing when no pair is complete."""
        del baselines
        if facts.regret is None:
            return missing("no complete pair")
        return Raw(value=facts.regret, components={"regret": facts.regret})
