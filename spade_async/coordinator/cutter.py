"""Cuts what has held up the learner, or an evaluation, for too long: by name, counted, for good.

Of a group with a cut member the finished members are trained and the cut one is missing, with a row
in the ledger, so that a resume does not ask for it again. The generator ends the task: its request
leaves the engine, its jailed workers are killed, its credit comes back (`TaskCut`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from spade_async.coordinator.core import Core
from spade_async.coordinator.design import DesignLoop
from spade_async.coordinator.dispatch import Task
from spade_async.coordinator.evaluation import EvalResult, Evaluation
from spade_async.coordinator.play import PlayLoop
from spade_async.coordinator.publish import Publisher
from spade_async.coordinator.schedule import Wait
from spade_async.coordinator.stragglers import Stragglers
from spade_async.transport.messages import DesignTask, TaskCut


class Cutter:
    """Carries out what `Stragglers` finds."""

    def __init__(
        self,
        core: Core,
        designs: DesignLoop,
        plays: PlayLoop,
        evaluation: Evaluation,
        publisher: Publisher,
        scored: Callable[[EvalResult | None], None],
    ) -> None:
        self._core = core
        self._designs = designs
        self._plays = plays
        self._evaluation = evaluation
        self._scored = scored
        self._publisher = publisher
        self._hold_s = core.config.eval.hold_s
        self._limit_s = core.config.async_.straggler_s
        self._stragglers = Stragglers(core.dispatcher, self._limit_s, publisher.has_loaded)

    async def look(self, wait: Wait | None) -> None:
        """Once per turn. `wait`: why an idle learner has no batch; None when it is not idle."""
        now_s = time.monotonic()
        if wait is None:
            self._stragglers.waits_not()
        else:
            blockers = self._core.schedule.blockers(wait)
            await self._cut(*self._stragglers.waits_for(blockers, now_s))
        await self._cut("evaluation", self._stragglers.evaluation(now_s))
        if self._hold_s is not None and self._publisher.held_s > self._hold_s:
            self._publisher.give_up_due()
            why = f"newer weights waited for it for eval.hold_s={self._hold_s:g} s"
            await self._cut("evaluation", self._stragglers.evaluation_tasks(), why)

    def on_ended(self, message: TaskCut) -> None:
        """A generator has ended a cut task."""
        self._core.dispatcher.ended(message.task_id)
        self._core.counters["tokens_cut_at_deadline"] += message.tokens

    async def _cut(self, name: str, tasks: list[Task], why: str = "") -> None:
        core = self._core
        if not tasks:
            return
        names = ", ".join(f"{t.task_id} ({len(t.waiting_for)} missing)" for t in tasks)
        core.alert(
            f"{name}: {why or f'nothing came for {self._limit_s:g} s'}; cut: {names}",
            kind="straggler_cut",
        )
        with core.ledger.transaction():
            for task in tasks:
                await core.dispatcher.cut(task)
                core.counters["tasks_cut"] += 1
                if isinstance(task.message, DesignTask):
                    self._designs.cut(task)
                elif task.message.purpose == "eval":
                    self._scored(self._evaluation.cut(task))
                else:
                    self._plays.cut(task)
            core.save_state()
