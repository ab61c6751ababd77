"""Step 6 of design.md 4: the episodes of one environment become a measurement in the ledger."""

from __future__ import annotations

from collections import Counter

from spade_async.config.regret import RegretConfig
from spade_async.coordinator import hints
from spade_async.coordinator.blocks import pairs_of, rule_of
from spade_async.coordinator.core import Core
from spade_async.coordinator.state import PlayGroup
from spade_async.ledger.regrets import RegretRow
from spade_async.regret import Pay, estimate, unpaired
from spade_async.types import Arm, MissingRegret, RegretEstimate


def pay_of(config: RegretConfig) -> Pay:
    """What the designer is paid from, as configured."""
    return Pay(
        is_lower=config.pay == "lower_confidence",
        confidence=config.confidence,
        lowest_return=config.lowest_return,
    )


def measure(core: Core, play: PlayGroup) -> RegretEstimate | MissingRegret:
    """Estimate the regret of an environment whose episodes are in, and note it in the ledger."""
    config, group = core.config.regret, play.parent
    if Arm.WITH_HINT not in play.cells:
        missing = MissingRegret(f"hints are off for the skill {group.skill if group else ''!r}")
        note(core, play, missing)
        return missing
    leak_share = play.environment.leak_share if config.leak_discount else 0.0
    found: RegretEstimate | MissingRegret
    if play.is_paired:
        found = estimate(
            pairs_of(play),
            leak_share=leak_share,
            mastered_at=config.mastered_at,
            out_of_reach_at=config.out_of_reach_at,
            early=rule_of(core.config, play),
            pay=pay_of(config),
        )
    else:
        found = unpaired(
            play.returns(Arm.WITH_HINT),
            play.returns(Arm.NO_HINT),
            leak_share=leak_share,
            mastered_at=config.mastered_at,
            out_of_reach_at=config.out_of_reach_at,
        )
    core.ledger.set_estimate(play.environment.environment_id, found)
    note(core, play, found)
    if group is not None and isinstance(found, RegretEstimate):
        hints.measured(core, group.skill, found)
    return found


def note(core: Core, play: PlayGroup, found: RegretEstimate | MissingRegret | None) -> None:
    """Write the measurement down; None or a missing one leaves its numbers empty."""
    known = found if isinstance(found, RegretEstimate) else None
    core.ledger.add_regret(
        RegretRow(
            group_id=play.group_id,
            environment_id=play.environment.environment_id,
            skill="" if play.parent is None else play.parent.skill,
            step=core.step,
            regret=None if known is None else known.regret,
            standard_error=None if known is None else known.standard_error,
            lower_bound=None if known is None else known.lower_bound,
            paid_regret=None if known is None else known.paid_regret,
            mean_with_hint=None if known is None else known.mean_with_hint,
            mean_no_hint=None if known is None else known.mean_no_hint,
            regret_class=None if known is None else known.regret_class,
            num_planned=len(play.seeds),
            num_played=play.num_issued,
            num_pairs=0 if known is None else known.num_pairs,
            is_stopped=play.is_stopped,
            missing=dict(
                Counter(
                    f"{arm}: {cell.missing_reason}"
                    for arm, cells in play.cells.items()
                    for cell in cells
                    if cell is not None and cell.missing_reason is not None
                )
            ),
        )
    )
