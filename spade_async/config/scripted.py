"""The section ``[scripted]``: what stands in for a model in tests and benches.

Everything is drawn from the run seed and the names of tasks, so two runs of one configuration say
the same. Allowed only with ``engine.kind = learner.kind = "scripted"`` (checked in `schema.py`).
"""

from __future__ import annotations

from pydantic import Field

from spade_async.config.section import Section, Share


class ScriptedConfig(Section):
    """A run without a model: how long things take, what comes out, what goes wrong."""

    # How long: tokens are log-normal, a request takes token_s for each.
    design_tokens: float = Field(40.0, ge=1.0, le=1e6)
    """Mean tokens of a design, before the cut at designer.max_new_tokens."""
    episode_tokens: float = Field(20.0, ge=1.0, le=1e6)
    """Mean tokens of one turn of an episode, before the cut at agent.max_new_tokens_per_turn."""
    sigma: float = Field(1.0, ge=0.0, le=4.0)
    """Deviation of the logarithm of both; 0 gives every request its mean."""
    token_s: float = Field(0.002, ge=0.0, le=60.0)
    """Seconds per token while a request has a slot; 0 takes no time at all."""
    change_factor: float = Field(1.0, gt=0.0, le=1000.0)
    """Times the tokens of a turn of an episode, from `change_at_step` or `change_at_s` on."""
    change_at_step: int | None = Field(None, ge=0)
    """Version (its step) from which `change_factor` holds."""
    change_at_s: float | None = Field(None, ge=0.0)
    """Seconds after the generator's start from which `change_factor` holds."""

    # What comes out.
    turns: int = Field(1, ge=1, le=64)
    """Turns of an episode."""
    validity: Share = 0.8
    """Probability that a design is valid; the others are rejected at three different stages."""
    validity_ends_at_step: int | None = Field(None, ge=0)
    """Version (its step) from which no design is valid any more."""
    solve_no_hint: Share = 0.4
    """Probability of the right action without the hint."""
    solve_with_hint: Share = 0.7
    """The same with the hint."""
    jail: bool = False
    """Whether programs run in the real jail; otherwise nothing is run and replies are scripted."""

    # The learner.
    learner_s: float = Field(0.05, ge=0.0, le=86_400.0)
    """Seconds of an update."""
    learner_token_s: float = Field(0.0, ge=0.0, le=60.0)
    """Seconds per trained token on top."""
    learner_change_factor: float = Field(1.0, gt=0.0, le=1000.0)
    """Times both, from `learner_change_at_step` on."""
    learner_change_at_step: int | None = Field(None, ge=0)
    """Learner step from which `learner_change_factor` holds."""
    learner_delay: str = Field("", pattern=r"^([A-Za-z_][\w.]*:[A-Za-z_]\w*)?$")
    """"module:function" from step to seconds, on top of all this; for tests."""
    weights_bytes: int = Field(0, ge=0, le=1 << 36)
    """Bytes of ballast in each weight file, for the bench of publishing."""

    # Faults.
    hang_share: Share = 0.0
    """Share of requests that never return and keep their slot."""
    swallow_share: Share = 0.0
    """Share of results that the generator never sends."""
    stuck_share: Share = 0.0
    """Share of valid designs in which the right action never returns."""
    long_share: Share = 0.0
    """Share of valid designs whose observation fits no context."""
    engine_dies_after: int | None = Field(None, ge=0)
    """Requests after which the engine is dead."""
    nonfinite_steps: tuple[int, ...] = ()
    """Learner steps whose update is not finite and is set aside."""


def thinking_clash(designer: bool | None, agent: bool | None) -> str | None:
    """What is wrong with a thinking switch that is set for scripted parts, or None."""
    for key, thinking in (("designer.thinking", designer), ("agent.thinking", agent)):
        if thinking is not None:
            return (
                f'{key}={str(thinking).lower()}, but engine.kind="scripted" has no chat template: '
                f"leave {key} out"
            )
    return None


def unused_clash(section: ScriptedConfig, engine_kind: str) -> str | None:
    """What is wrong with a section that belongs to another engine, or None."""
    usual = ScriptedConfig()
    changed = [name for name, value in section if value != getattr(usual, name)]
    if not changed:
        return None
    return (
        f'scripted.{changed[0]} is set but engine.kind="{engine_kind}": the section [scripted] is '
        'for engine.kind="scripted" and learner.kind="scripted"'
    )
