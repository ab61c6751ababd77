"""Writes down when things happened: per result and per step, for `spade-async simulate RUN`.

Collects in memory and writes with the next transaction. Decides nothing; a run without it would be
the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from spade_async.coordinator.dispatch import Task
from spade_async.grpo.samples import whole_ids
from spade_async.ledger import STILL_OUT, Ledger, StepTime, TaskTime
from spade_async.telemetry.clock import steady_unix_s
from spade_async.transport.messages import DesignResult, EpisodeResult, StepReport, TrainingBatch

STEPS_KEPT = 4
"""Steps whose instants can still come; weights of an older one were overtaken."""


class Timings:
    """Rows that are not in the ledger yet, and the steps whose instants are still coming."""

    def __init__(self) -> None:
        self._tasks: list[TaskTime] = []
        self._steps: dict[int, StepTime] = {}
        self._changed: set[int] = set()

    def design(self, task: Task, result: DesignResult) -> None:
        """One design came back for a task that was out."""
        self._add(task, result, kind="design")

    def episode(self, task: Task, result: EpisodeResult, kind: str) -> None:
        """One episode came back; `kind` is that of its group, "play" or "pool"."""
        self._add(task, result, kind=kind, arm=result.arm, position=result.index)

    def _add(
        self,
        task: Task,
        result: DesignResult | EpisodeResult,
        *,
        kind: str,
        arm: str = "",
        position: int = 0,
    ) -> None:
        timing = result.timing
        if task.sent_s is None or not timing:
            return
        now = steady_unix_s()
        self._tasks.append(
            TaskTime(
                task_id=result.task_id,
                position=position,
                group_id=result.group_id,
                kind=kind,
                arm=arm,
                generator=task.peer or "",
                dispatched_unix_s=now - (time.monotonic() - task.sent_s),
                started_unix_s=now - timing["total_s"],
                finished_unix_s=now,
                queue_s=timing["queue_s"],
                engine_s=timing["engine_s"],
                num_tokens=int(result.loss_mask.sum()),
            )
        )

    def taken(self, ordinal: int, batch: TrainingBatch) -> None:
        """The batch that makes this version is sent to the learner."""
        self._steps[ordinal] = StepTime(
            ordinal=ordinal,
            num_samples=len(whole_ids(batch.sample_ids)),
            num_tokens=int(batch.loss_mask.sum()),
            taken_unix_s=steady_unix_s(),
        )
        self._changed.add(ordinal)

    def trained(self, ordinal: int, report: StepReport) -> None:
        """Its step was reported."""
        self._note(ordinal, trained_unix_s=steady_unix_s(), busy_s=report.busy_s)

    def published(self, ordinal: int | None) -> None:
        """Its weights were sent to the generators."""
        self._note(ordinal, published_unix_s=steady_unix_s())

    def loaded(self, ordinal: int | None) -> None:
        """A generator has its weights; only the first one counts."""
        self._note(ordinal, loaded_unix_s=steady_unix_s())

    def _note(self, ordinal: int | None, **instants: float) -> None:
        step = None if ordinal is None else self._steps.get(ordinal)
        if step is None or all(getattr(step, key) is not None for key in instants):
            return
        self._steps[step.ordinal] = replace(step, **instants)  # type: ignore[arg-type]  # times
        self._changed.add(step.ordinal)

    def still_out(self, ledger: Ledger, tasks: Iterable[Task]) -> None:
        """The run ends: note since when these tasks are out; inside a transaction."""
        now, clock_s = steady_unix_s(), time.monotonic()
        out = {task.task_id: now - (clock_s - task.sent_s) for task in tasks if task.sent_s}
        ledger.put_state(STILL_OUT, out)

    def write(self, ledger: Ledger) -> None:
        """Write what is new; inside a transaction."""
        if self._tasks:
            ledger.add_task_times(self._tasks)
            self._tasks = []
        if self._changed:
            ledger.put_step_times(self._steps[ordinal] for ordinal in sorted(self._changed))
            self._changed.clear()
            for ordinal in sorted(self._steps)[:-STEPS_KEPT]:
                del self._steps[ordinal]
