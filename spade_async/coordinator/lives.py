"""Parts that die and come back while the run goes on.

A generator that is dead gives its tasks back; the one that comes in its place starts from the
newest weights. A learner that comes back has only its newest checkpoint: the steps after it are
undone and trained again on a new branch, as a resume does, but in the living coordinator: what
generators work on meanwhile stays theirs, and nothing is asked for twice.
"""

from __future__ import annotations

import logging
from collections import deque

from spade_async.coordinator.batch import Plan
from spade_async.coordinator.core import Core
from spade_async.coordinator.news import News
from spade_async.coordinator.publish import Publisher
from spade_async.coordinator.regroup import restore_schedule
from spade_async.coordinator.resume import Resumed, replays, undo
from spade_async.coordinator.watch import Watch
from spade_async.telemetry.tensorboard import EventWriter
from spade_async.transport.hub import Hub

log = logging.getLogger(__name__)


class Lives:
    """Takes in deaths and returns; the process calls it between two transactions."""

    def __init__(
        self,
        core: Core,
        hub: Hub,
        publisher: Publisher,
        watch: Watch,
        tensorboard: EventWriter,
    ) -> None:
        self._core = core
        self._hub = hub
        self._publisher = publisher
        self._watch = watch
        self._tensorboard = tensorboard
        self.news: deque[News] = deque()
        """What the supervisor said; taken in with the next turn."""

    def died(self, news: News) -> None:
        """The supervisor saw a part die."""
        name, again_in_s = news.name, news.again_in_s
        core = self._core
        kind = "generator" if name.startswith("gen-") else "learner"
        core.counters[f"deaths_{kind}"] += 1
        core.life.died(core.counters, news)
        then = "not started again" if again_in_s is None else f"started again in {again_in_s:.1f} s"
        core.alert(f"{news.text}; {then}", kind="part_died")
        self._watch.died(name, then)
        if kind == "generator":
            self.lose_generator(name)

    def lose_generator(self, name: str) -> None:
        """Queue again what a dead generator held; harmless when repeated."""
        num_tasks = self._core.dispatcher.lose(name)
        self._publisher.lose_generator(name)
        self._core.counters["tasks_again"] += num_tasks
        if num_tasks:
            log.info("%d tasks of %s are asked for again", num_tasks, name)

    def back(self, name: str) -> None:
        """A new incarnation said hello: the old one's unread messages are nobody's."""
        self._hub.take_orphans(name)
        self._core.life.back(name)
        self._watch.back(name)
        if name.startswith("gen-"):
            self.lose_generator(name)

    def fall_back(self, resumed: Resumed) -> None:
        """The learner lost what it had in memory: undo, and plan what is trained again.

        Changes `resumed.learner` and `resumed.replay`.
        """
        core = self._core
        had = core.step
        batches = undo(core, resumed.learner)
        core.counters["fall_backs"] += 1
        core.counters["steps_undone"] += had - core.step
        with core.ledger.transaction():
            plans: list[Plan] = replays(core, batches)
            core.forget(s.group_id for batch in batches for s in batch.samples)
            restore_schedule(core, core.ledger.last_ordinal(), num_replays=len(plans))
            core.save_state()
        resumed.replay[:] = plans
        self._publisher.fall_back()
        if core.shown_step > core.step:
            core.shown_step = core.step
            self._tensorboard.purge(core.step + 1)
        log.info(
            "the learner goes on from step %d on branch %d: %d batches to train again",
            core.step,
            core.branch,
            len(plans),
        )
