"""What a design is paid (step 8): regret less a novelty penalty, or a bounded negative signal.

The advantage within the designer's group is `grpo.advantage`; the regret is `regret`.
"""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.types import MissingRegret, RegretEstimate, Rejection


@dataclass(frozen=True, slots=True)
class Unplayed:
    """A valid design that the skeleton quota kept from being played: a verdict, not a gap."""

    reason: str


def design_reward(
    verdict: RegretEstimate | MissingRegret | Rejection | Unplayed,
    *,
    skeleton_share: float,
    novelty_penalty: float,
    invalid_reward: float,
) -> float | None:
    """Pay of one design, in the agent's return units.

    * played: ``paid_regret - novelty_penalty * skeleton_share``;
    * rejected: `invalid_reward`;
    * unplayed (one too many of its skeleton): zero regret less the full penalty,
      ``-novelty_penalty``: there are too many of it in any case, and measuring it would cost plays;
    * regret missing: None. The sample is missing too; it is never paid a number.

    Args:
        verdict: what became of the design.
        skeleton_share: share of its skeleton among recent designs, in [0, 1].
        novelty_penalty: `designer.novelty_penalty`, at least 0.
        invalid_reward: `designer.invalid_reward`, at most 0.
    """
    match verdict:
        case RegretEstimate():
            return verdict.paid_regret - novelty_penalty * skeleton_share
        case Rejection():
            return invalid_reward
        case Unplayed():
            return -novelty_penalty
        case MissingRegret():
            return None
