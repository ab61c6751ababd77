"""`regret.*`: what the designer is paid by."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from spade_async.config.section import Section, Share


class RegretConfig(Section):
    """Classes of regret and the checks of its inputs."""

    mastered_at: Share = 0.9
    """Mean unhinted success (return clamped to [0, 1]) from which an environment is mastered."""
    out_of_reach_at: Share = 0.1
    """Mean hinted success at or below which it is out of reach."""
    pay: Literal["mean", "lower_confidence"] = "mean"
    """What the designer is paid from: the mean over pairs, or its lower confidence bound, which
    pays less for a regret that few or unequal pairs show; see docs/regret.md."""
    confidence: float = Field(0.8, gt=0.0, lt=1.0)
    """Confidence of the lower bound, one-sided; it is in the ledger whatever `pay` says."""
    lowest_return: float = Field(-1.0, ge=-1.0, le=0.0)
    """Lowest return environments give. Where failing gives 0, 0 makes the bound half as wide."""
    early_class: bool = True
    """Play pairs in blocks, and no more of an environment once its class is certain; see
    docs/regret.md. Without effect where run.compat is "reference", which plays every pair."""
    early_block: int = Field(2, ge=2, le=1024)
    """Pairs in a block; at least agent.seeds_per_environment: all at once."""
    early_error: Share = 0.0
    """Chance that the full count would give another class, up to which a class is certain; with 0
    no class is ever another one, and only what cannot change it is not played."""
    reference_hinted_plays: int = Field(16, ge=1, le=1024)
    """Hinted plays of an environment where run.compat is "reference", on seeds of their own; a
    fault in one counts 0. Without effect elsewhere: there both arms play the same seeds."""
    negative: Literal["ignore", "no_hint", "learning_potential"] = "learning_potential"
    """What is done for a skill whose regret is significantly negative, because hints mislead: tell
    it only; play its environments without hints and pay by solve rate; or by learning potential."""
    negative_alarm_every: float = Field(10_000.0, ge=10.0, le=1e12)
    """Environments of a skill between two false alarms, on average at least."""
    negative_recheck: int = Field(100, ge=1, le=1_000_000)
    """Learner steps after which hints of such a skill are tried again."""
    leak_seeds: int = Field(4, ge=0, le=64)
    """Seeds on which the hint alone is tried as the answer; 0 measures nothing."""
    leak_discount: bool = True
    """Whether the designer is paid regret * (1 - share of seeds that leak). False still measures
    the share and pays the regret as it is."""
