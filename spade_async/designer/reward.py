"""What a design is paid (step 8): the value of its variant less penalties, or a bounded signal.

The value of a design that was played is `designer.rewards`, its advantage `grpo.baseline`.
"""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.designer.rewards.facts import Raw
from spade_async.types import MissingRegret, Outcome, Rejection

TURN = "turn"
"""Among the repairs: a later repair turn made the program, the trained text was invalid."""


@dataclass(frozen=True, slots=True)
class Unplayed:
    """A valid design that is not played: a verdict, not a gap.

    One too many of its skeleton, or a near copy of a remembered environment.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PayRule:
    """Penalties and bounded pay; every pay here is at most 0, every penalty at least 0."""

    novelty_penalty: float
    """`designer.novelty_penalty`."""
    invalid: float | None
    """`designer.invalid_reward`; None pays nothing (the reference)."""
    timed_out: float = -1.0
    """`designer.reward.timed_out`."""
    repaired: float = -0.5
    """`designer.reward.repaired`."""
    repair_penalty: float = 0.0
    """`designer.reward.repair_penalty`."""


def design_reward(
    verdict: Raw | MissingRegret | Rejection | Unplayed,
    rule: PayRule,
    *,
    skeleton_share: float,
    repaired: tuple[str, ...] = (),
) -> float | None:
    """Pay of one design, in the agent's return units.

    * played: ``value - novelty_penalty * skeleton_share``, less `repair_penalty` when its text was
      repaired; `rule.repaired` when a repair turn made its program;
    * rejected: `rule.timed_out` when it hung, else `rule.invalid`;
    * unplayed (one too many of its skeleton, or a near copy): zero regret less the full penalty,
      ``-novelty_penalty``: there are too many of it in any case, and measuring it would cost plays;
    * missing or masked: None. The sample is missing too; it is never paid a number.

    Args:
        verdict: what became of the design.
        rule: of the run.
        skeleton_share: share of its skeleton among recent designs, in [0, 1].
        repaired: what was repaired before it could be played, see `DesignResult.repaired`.
    """
    match verdict:
        case Raw():
            if verdict.value is None or verdict.is_masked:
                return None
            if TURN in repaired and rule.invalid is not None:
                return rule.repaired
            reward = verdict.value - rule.novelty_penalty * skeleton_share
            return reward - rule.repair_penalty if repaired else reward
        case Rejection():
            if rule.invalid is None:
                return None
            return rule.timed_out if verdict.outcome is Outcome.TIMED_OUT else rule.invalid
        case Unplayed():
            return -rule.novelty_penalty
        case MissingRegret():
            return None
