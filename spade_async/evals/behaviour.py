"""The behaviour shift of a run, from its stored episodes: first against last third of the steps."""

from __future__ import annotations

import json
import math

from spade_async.agent.behaviour import Behaviour, of_record
from spade_async.ledger import LedgerReader

_PREFIX = "behaviour/"


def by_third(ledger: LedgerReader, steps: int) -> dict[str, dict[str, float | None]] | None:
    """{"first_third", "last_third"} -> figures of the unhinted episodes trained in those steps.

    None when no episode of several turns is stored (a run of single turns, or of an older program).
    """
    third = math.ceil(steps / 3)
    rows = ledger.query(
        "SELECT b.step, s.extra_json FROM samples s JOIN batches b ON b.ordinal = s.trained_ordinal"
        " WHERE s.role = 'agent' AND s.purpose = 'train' AND b.state = 'consumed'"
        " AND s.extra_json LIKE ?",
        ('%"behaviour"%',),
    )
    first, last, found = Behaviour(), Behaviour(), False
    for step, extra_json in rows:
        record = json.loads(extra_json).get("behaviour")
        if not isinstance(record, dict):
            continue
        found = True
        if step <= third:
            first += of_record(record)
        if step > steps - third:
            last += of_record(record)
    if not found:
        return None
    return {"first_third": _short(first), "last_third": _short(last)}


def _short(behaviour: Behaviour) -> dict[str, float | None]:
    return {tag.removeprefix(_PREFIX): value for tag, value in behaviour.figures().items()}
