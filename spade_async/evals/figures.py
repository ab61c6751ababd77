"""What a run reached, from its ledger: the figures of `report --json`. Missing numbers are None."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spade_async.ledger import LedgerReader
from spade_async.ledger.rows import EvalRow, StepRow
from spade_async.ledger.scores import Pairs

VALIDITY_WINDOW = 200
"""Designs in a row over which validity is taken; the report shows the worst such window."""
FAMILY_LABEL = "family"
LEVEL_LABEL = "level"


ALL_LEVELS = "all"
"""Name of the row over the instances of all levels."""


@dataclass(frozen=True, slots=True)
class HeldOutRow:
    """One row of the end table: accuracy of the first and the last scored version.

    The difference is over the instances that both have scored, with the standard error that it has
    if nothing has changed (McNemar's test, for returns of 0 and 1), one changed instance added, as
    no error is 0. None in the ledger of an older program, which has no single instances.
    """

    level: str
    n: int
    base: float | None
    base_se: float | None
    trained: float | None
    trained_se: float | None
    difference: float | None = None
    difference_se: float | None = None


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The end table with the versions it compares."""

    base_version: str | None
    trained_version: str | None
    rows: tuple[HeldOutRow, ...]


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its standard error and count."""

    mean: float | None
    standard_error: float | None
    n: int


def mean_of(values: Sequence[float]) -> Mean:
    """Mean and standard error of values; None where there are too few."""
    n = len(values)
    if n == 0:
        return Mean(None, None, 0)
    mean = sum(values) / n
    if n == 1:
        return Mean(mean, None, 1)
    variance = sum((v - mean) ** 2 for v in values) / (n - 1)
    return Mean(mean, math.sqrt(variance / n), n)


def held_out(ledger: LedgerReader) -> HeldOut:
    """First against last scored version of the surviving history: each level, and all together."""
    evals = ledger.evals()
    if not evals:
        return HeldOut(None, None, ())
    base = min(e.ordinal for e in evals)
    trained = max(e.ordinal for e in evals)
    first = {e.level: e for e in evals if e.ordinal == base}
    last = {e.level: e for e in evals if e.ordinal == trained} if trained != base else {}
    versions = {e.ordinal: e.version for e in evals}
    pairs = {p.level: p for p in ledger.paired_scores(versions[base], versions[trained])}
    levels = sorted({*first, *last}, key=_by_number)
    rows = [
        _row(
            level,
            [first[level]] if level in first else [],
            [last[level]] if level in last else [],
            [pairs[level]] if last and level in pairs else [],
        )
        for level in levels
    ]
    if len(levels) > 1 and set(first) == set(last or first):
        all_pairs = list(pairs.values()) if last and set(pairs) == set(levels) else []
        rows.append(_row(ALL_LEVELS, list(first.values()), list(last.values()), all_pairs))
    shown = str(versions[trained]) if last else None
    return HeldOut(str(versions[base]), shown, tuple(rows))


def _row(
    level: str, first: Sequence[EvalRow], last: Sequence[EvalRow], pairs: Sequence[Pairs]
) -> HeldOutRow:
    """One row over one level or several."""
    n = max(sum(e.num_instances for e in first), sum(e.num_instances for e in last))
    difference = error = None
    if num := sum(p.num for p in pairs):
        difference = sum(p.sum_of_differences for p in pairs) / num
        error = math.sqrt(sum(p.sum_of_squares for p in pairs) + 1.0) / num
    return HeldOutRow(level, n, *_pooled(first), *_pooled(last), difference, error)


def _pooled(evals: Sequence[EvalRow]) -> tuple[float | None, float | None]:
    """Mean over the instances of some levels and its standard error; None what one level lacks."""
    if len(evals) == 1:
        return evals[0].mean, evals[0].standard_error
    total = sum(e.num_instances for e in evals)
    means = [e.mean * e.num_instances for e in evals if e.mean is not None]
    if not total or len(means) < len(evals):
        return None, None
    errors = [e.standard_error * e.num_instances for e in evals if e.standard_error is not None]
    error = math.hypot(*errors) / total if len(errors) == len(evals) else None
    return sum(means) / total, error


def _by_number(level: str) -> tuple[float, str]:
    return (float(level), "") if level.replace(".", "", 1).isdigit() else (math.inf, level)


def design_validity(ledger: LedgerReader) -> tuple[float | None, float | None, int]:
    """(validity of the worst window, over all, number of designs), self-designed only.

    Missing designs (our fault) count in neither. With fewer than a window of designs the window is
    all of them.
    """
    rows = ledger.query(
        "SELECT rejection_stage IS NULL FROM samples s JOIN groups g USING (group_id)"
        " WHERE s.role = 'designer' AND g.kind = 'design' AND s.purpose = 'train'"
        " AND s.missing_reason IS NULL ORDER BY s.number"
    )
    valid = [int(row[0]) for row in rows]
    if not valid:
        return None, None, 0
    window = min(VALIDITY_WINDOW, len(valid))
    inside = sum(valid[:window])
    worst = inside
    for new, old in zip(valid[window:], valid, strict=False):
        inside += new - old
        worst = min(worst, inside)
    return worst / window, sum(valid) / len(valid), len(valid)


def skeletons_per_batch(ledger: LedgerReader, full_groups: int) -> tuple[int | None, float | None]:
    """(fewest, mean) distinct program shapes among the valid designs of a trained batch.

    Only batches with their whole quota of designer groups count: one that had to go with fewer
    groups says nothing about variety.
    """
    rows = ledger.query(
        "SELECT COUNT(DISTINCT e.skeleton) FROM batch_samples r JOIN batches b USING (ordinal)"
        " JOIN samples s USING (sample_id) LEFT JOIN designs d USING (sample_id)"
        " LEFT JOIN environments e ON e.environment_id = d.environment_id"
        " WHERE b.state = 'consumed' AND s.role = 'designer'"
        " GROUP BY b.ordinal HAVING COUNT(DISTINCT r.group_id) >= ?",
        (full_groups,),
    )
    counts = [int(row[0]) for row in rows]
    return (min(counts), sum(counts) / len(counts)) if counts else (None, None)


def largest_share_last_third(ledger: LedgerReader, label: str, steps: int) -> float | None:
    """Largest share of one label value among the environments played in the last third of steps."""
    rows = ledger.query(
        "SELECT DISTINCT r.ordinal, r.group_id, e.labels_json FROM batch_samples r"
        " JOIN batches b USING (ordinal) JOIN groups g ON g.group_id = r.group_id"
        " JOIN environments e ON e.environment_id = g.environment_id"
        " WHERE b.state = 'consumed' AND g.role = 'agent' AND b.step > ?",
        (steps - math.ceil(steps / 3),),
    )
    values = Counter(value for row in rows if (value := _labels(row[2]).get(label)) is not None)
    return max(values.values()) / values.total() if values else None


def mean_label_by_third(ledger: LedgerReader, label: str, steps: int) -> tuple[Mean, Mean]:
    """Mean of a numeric label over the valid designs of the first and the last third of steps."""
    third = math.ceil(steps / 3)
    rows = ledger.query(
        "SELECT d.created_step, e.labels_json FROM designs d"
        " JOIN environments e USING (environment_id)"
    )
    first: list[float] = []
    last: list[float] = []
    for created_step, labels_json in rows:
        try:
            value = float(_labels(labels_json)[label])
        except (KeyError, ValueError):
            continue
        if created_step <= third:
            first.append(value)
        if created_step > steps - third:
            last.append(value)
    return mean_of(first), mean_of(last)


def _labels(labels_json: str) -> dict[str, str]:
    pairs: Any = json.loads(labels_json)
    return dict(pairs)


def episode_rate(
    ledger: LedgerReader, steps: Sequence[StepRow], starts_unix_s: Sequence[float]
) -> float | None:
    """Episodes committed per hour while learner steps ran; None with fewer than two steps.

    Counted from the first to the last learner step, without the gaps in which the run was not
    running (an interval between two steps that holds a start).
    """
    spans: list[tuple[float, float]] = []
    for before, after in itertools.pairwise(steps):
        begin, end = before.wall_unix_s, after.wall_unix_s
        if end <= begin or any(begin < start < end for start in starts_unix_s):
            continue
        if spans and spans[-1][1] == begin:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((begin, end))
    # A question of its own for each span reads every sample: there are as many spans as starts.
    episodes = sum(
        ledger.query(
            "SELECT COUNT(*) FROM samples WHERE role = 'agent' AND missing_reason IS NULL"
            " AND created_unix_s > ? AND created_unix_s <= ?",
            span,
        )[0][0]
        for span in spans
    )
    span_s = sum(end - begin for begin, end in spans)
    return episodes * 3600.0 / span_s if span_s > 0 else None


def weighted_mean(steps: Sequence[StepRow], tag: str, weight: str | None = None) -> float | None:
    """Mean of a metric over steps, weighted by another one; steps without it are left out."""
    total = weights = 0.0
    for row in steps:
        value = row.metrics.get(tag)
        share = 1.0 if weight is None else row.metrics.get(weight)
        if value is not None and share is not None:
            total += value * share
            weights += share
    return total / weights if weights > 0 else None


def newest(steps: Sequence[StepRow], tag: str) -> float | None:
    """Value of a metric in the newest step that has it."""
    return next((row.metrics[tag] for row in reversed(steps) if tag in row.metrics), None)
