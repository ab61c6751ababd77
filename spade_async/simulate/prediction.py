"""A run's own step time, and what the simulator says of it, also under another setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spade_async.config.load import load_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.coordinator.blocks import early_rule
from spade_async.errors import LedgerError
from spade_async.ledger import LedgerReader
from spade_async.simulate.recorded import (
    MeasuredSteps,
    RecordedWorkload,
    Span,
    measured_steps,
    recorded_workload,
)
from spade_async.simulate.two_roles import TwoRoles
from spade_async.simulate.whatif import setting_of

MOST_STEPS = 1000
"""Steps that are replayed: the mean over more is no better, and each setting takes seconds."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What a run folder says of a run."""

    config: Config
    measured: MeasuredSteps
    workload: RecordedWorkload


def read_run(
    run_dir: Path, *, since_unix_s: float = 0.0, until_unix_s: float = math.inf
) -> RecordedRun:
    """Read steps and work of a run, after the start at `since_unix_s` and before `until_unix_s`.

    Of more than `MOST_STEPS` steps the first are taken: work is replayed from its beginning.

    Raises:
        ConfigError: not a run folder.
        LedgerError: no timings, or too few steps.
    """
    config = load_resolved(run_dir)
    with LedgerReader.open(RunFolder(run_dir).ledger) as ledger:
        span = (since_unix_s, until_unix_s)
        measured = measured_steps(ledger, span, config.async_.bounds[0])
        if measured.num_steps > MOST_STEPS:
            span = _first_steps(ledger, span, measured.warm_up + MOST_STEPS)
            measured = measured_steps(ledger, span, config.async_.bounds[0])
        rule = early_rule(config)
        block = 0 if rule is None else rule.block
        workload = recorded_workload(ledger, span, *config.async_.bounds, block=block)
    return RecordedRun(config, measured, workload)


def _first_steps(ledger: LedgerReader, span: Span, num_steps: int) -> Span:
    """The part of a span in which so many steps were done."""
    taken = (step.taken_unix_s for step in ledger.step_times() if step.trained_unix_s is not None)
    inside = [at for at in taken if span[0] <= at < span[1]]
    return span[0], inside[num_steps]


def read_newest(run_dir: Path, starts_unix_s: Sequence[float]) -> tuple[RecordedRun, int]:
    """The newest start of a run that did enough steps, and how many newer ones did not.

    Raises:
        ConfigError: not a run folder.
        LedgerError: no timings, or no start that did enough.
    """
    ends = [*sorted(starts_unix_s)[1:], math.inf]
    spans = list(zip(sorted(starts_unix_s), ends, strict=True)) or [(0.0, math.inf)]
    first: LedgerError | None = None
    for number, (since_s, until_s) in enumerate(reversed(spans)):
        try:
            return read_run(run_dir, since_unix_s=since_s, until_unix_s=until_s), number
        except LedgerError as fault:
            first = first or fault
    assert first is not None  # there is a span, and it failed
    if len(spans) == 1:
        raise first
    raise LedgerError(f"{first} (none of the {len(spans)} starts of this run did enough)")


def predict_step_s(work: RecordedRun, target: RecordedRun) -> float:
    """Mean step time of the work of one run under the setting, and over the steps, of another."""
    setting = setting_of(target.config, latency_s=work.workload.latency_s)
    measured = target.measured
    steps = measured.warm_up + measured.num_steps
    return TwoRoles(setting, work.workload).run(steps, warm_up=measured.warm_up).step_s
