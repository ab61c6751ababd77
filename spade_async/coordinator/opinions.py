"""What the generator noted of a design beside its verdict: repairs, attempts, second opinions.

It is kept with the design's sample in the ledger, as JSON, and comes back with a resume.
"""

from __future__ import annotations

from typing import Any

from spade_async.coordinator.state import DesignMember
from spade_async.transport.messages import DesignResult


def extra(result: DesignResult) -> dict[str, Any]:
    """What there is to keep; {} of most designs."""
    found = {
        "repaired": [str(kind)[:20] for kind in result.repaired[:8]],
        "repair_turns": result.repair_turns,
        "attempts": [
            {"stage": str(a.get("stage", ""))[:40], "reason": str(a.get("reason", ""))[:500]}
            for a in result.attempts[:16]
        ],
        "verdicts": {name: result.verdicts[name] for name in sorted(result.verdicts)[:4]},
    }
    return {name: value for name, value in found.items() if value}


def take(member: DesignMember, known: dict[str, Any], judge_penalty: float) -> None:
    """Put what pay needs of it into a member, at first or after a resume.

    Args:
        member: changed in place.
        known: as `extra` gave it, or the ledger.
        judge_penalty: `designer.judge_penalty`.
    """
    member.repaired = tuple(known.get("repaired", ()))
    judged = known.get("verdicts", {}).get("judge")
    member.judge_penalty = judge_penalty if judged == "no" else 0.0
