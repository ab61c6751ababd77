"""`regret.*`: what the designer is paid by."""

from __future__ import annotations

from pydantic import Field

from spade_async.config.section import Section, Share


class RegretConfig(Section):
    """Classes of regret and the checks of its inputs."""

    mastered_at: Share = 0.9
    """Mean unhinted success (return clamped to [0, 1]) from which an environment is mastered."""
    out_of_reach_at: Share = 0.1
    """Mean hinted success at or below which it is out of reach."""
    leak_seeds: int = Field(4, ge=0, le=64)
    """Seeds on which the hint alone is tried as the answer; 0 measures nothing."""
    leak_discount: bool = True
    """Whether the designer is paid regret * (1 - share of seeds that leak). False still measures
    the share and pays the regret as it is."""
