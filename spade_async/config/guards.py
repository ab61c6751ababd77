"""`guards.*`: when a run says that self-play goes wrong. The guards themselves are elsewhere.

What keeps a run from going wrong: `regret.leak_discount`, `designer.novelty_penalty`,
`designer.plays_per_skeleton`, `agent.pool_share`, `learner.kl_to_start` (docs/guards.md).
"""

from __future__ import annotations

from pydantic import Field

from spade_async.config.section import Section, Share


class GuardsConfig(Section):
    """Alarms of self-play: a collapsed designer, hints that are answers, forgetting."""

    alarms: bool = True
    """Tell when a limit below is passed. The figures are measured in any case."""
    window: int = Field(64, ge=8, le=100_000)
    """Newest valid designs over which variety and leaks are taken; the first full window is the
    start that they are compared with."""
    patience: int = Field(3, ge=1, le=10_000)
    """Learner steps in a row beyond a limit before it is told, and back within before it is over.
    """
    min_skeletons: float = Field(8.0, ge=1.0, le=100_000.0)
    """Fewer effective skeletons than this (the exponential of their entropy) are a collapse ..."""
    entropy_share: Share = 0.75
    """... when their entropy is also below this share of what it was at the start."""
    family_share: Share = 0.6
    """A larger share of one family (a label of the domain) is a collapse ..."""
    family_rise: Share = 0.3
    """... when it is also this much more than at the start."""
    leak_share: Share = 0.6
    """A larger mean share of seeds on which the hint alone is the answer is told ..."""
    leak_rise: Share = 0.15
    """... when it is also this much more than at the start."""
    forgetting_drop: Share = 0.05
    """A held-out accuracy that fell by more than this since the first or the best evaluation is
    told ..."""
    forgetting_errors: float = Field(3.0, ge=0.0, le=100.0)
    """... when the fall is also more than so many of its standard errors (for one level or family
    more, as there are many to look at)."""
