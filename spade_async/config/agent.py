"""`agent.*`: the role that acts in environments."""

from __future__ import annotations

from pydantic import Field

from spade_async.config.section import Section, Share


class AgentConfig(Section):
    """The role that acts in environments."""

    seeds_per_environment: int = Field(8, ge=2, le=1024)
    """Instances per environment; each is played once in either arm."""
    groups_per_step: int = Field(20, ge=1, le=4096)
    """Quota (ceiling) of agent groups (one environment each) in one learner step."""
    temperature: float = Field(1.0, gt=0.0, le=4.0)
    """As designer.temperature."""
    max_turns: int = Field(4, ge=1, le=1000)
    """Most turns of an episode."""
    thinking: bool | None = None
    """Sets the chat template's thinking switch (Qwen3 class); not set: as the template has it. A
    template without the switch is refused. Thoughts need room in the token limits."""
    max_new_tokens_per_turn: int = Field(16, ge=1, le=65_536)
    """Longest reply in one turn."""
    pool: str = Field("", max_length=4096)
    """Folder of programs (`*.py`, and the `pool.json` of spade-async export if there is one) that
    are the seed pool, in place of the domain's own; "" is the domain's. See docs/contract.md."""
    pool_share: Share = 0.25
    """Share of the agent's places kept for plays from memory or the seed pool; 0 plays only what
    was just designed."""
