"""How the reference plays, where it differs from ours (`run.compat = "reference"`).

An exception in `step`, or a malformed reply of it, ends the episode with -1: the agent is punished
for the designer's bug. One in `reset` is shown as the first observation and play goes on. What
hangs has no return (`generator/blacklist.py`). Source: SPADE's public code as described by its
behaviour; docs/compat.md says what ours does instead.
"""

from __future__ import annotations

from spade_async.types import Outcome, Reply

CHARGED = frozenset({Outcome.EXCEPTION, Outcome.BAD_VALUE})
"""Outcomes of a call that are the agent's loss; any other one has no return."""
FAULT_RETURN = -1.0


def error_observation(first: Reply) -> str | None:
    """What is shown in the place of a first observation that `reset` failed to give; None: nothing.

    Our own words: the reference's are not reproduced.
    """
    return f"The game reports an error: {first.detail}" if first.outcome in CHARGED else None
