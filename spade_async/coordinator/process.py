"""The coordinator process: one asyncio loop over everything that arrives.

Owns: the hub, the ledger (its one writer), the schedule, TensorBoard. Each turn of the loop takes
what has arrived, commits it in one transaction, acknowledges it, then lets out new work and, when
the schedule allows, the next batch. Parts may die and come back under it (`lives.py`); when it dies
itself, the supervisor ends the run and ``--resume`` goes on from the ledger.

    learner  --StepReport-->  commit  --WeightsPublished-->  generators --WeightsLoaded--> admission
    generators --results--> commit --ack--> ... Schedule.take() --TrainingBatch--> learner
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

from spade_async.config.load import flatten
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.coordinator.batch import BatchLoop, Plan
from spade_async.coordinator.budget import BudgetKeeper
from spade_async.coordinator.control import Control
from spade_async.coordinator.core import Core
from spade_async.coordinator.cutter import Cutter
from spade_async.coordinator.design import DesignLoop
from spade_async.coordinator.disk import DiskPause
from spade_async.coordinator.evaluation import EvalResult, Evaluation
from spade_async.coordinator.last_save import LastSave
from spade_async.coordinator.lives import Lives
from spade_async.coordinator.news import News
from spade_async.coordinator.play import PlayLoop
from spade_async.coordinator.publish import Publisher
from spade_async.coordinator.replay import ReplayLoop
from spade_async.coordinator.resume import Resumed, rebuild
from spade_async.coordinator.schedule import Wait
from spade_async.coordinator.score import Scorer
from spade_async.coordinator.steps import StepLoop
from spade_async.coordinator.watch import Watch
from spade_async.errors import ProcessFailure
from spade_async.telemetry.clock import steady_unix_s
from spade_async.telemetry.status import write_status
from spade_async.telemetry.tensorboard import EventWriter
from spade_async.transport import messages as m
from spade_async.transport.hub import Hub, Received
from spade_async.types import PolicyVersion

log = logging.getLogger(__name__)

TURN_S = 0.05
"""Longest sleep of the loop when nothing arrives."""
MOST_PER_TURN = 512
STATUS_S = 1.0
LEARNER = "learner"


class Coordinator:
    """Wires the loops together; each of them is in a file of its own."""

    def __init__(self, config: Config, folder: RunFolder, hub: Hub) -> None:
        self._hub = hub
        self._resumed: Resumed = rebuild(config, folder, hub)
        self.core: Core = self._resumed.core
        scorer = Scorer(self.core)
        self._designs = DesignLoop(self.core, scorer)
        self._plays = PlayLoop(self.core, scorer)
        self._replays = ReplayLoop(self.core, self._plays, scorer.payer)
        self._batches = BatchLoop(self.core)
        self._evaluation = Evaluation(self.core)
        self._publisher = Publisher(self.core, hub, self._evaluation)
        self._cutter = Cutter(
            self.core,
            self._designs,
            self._plays,
            self._evaluation,
            self._publisher,
            self._scored,
        )
        self._wait: Wait | None = None
        """Why the learner has no batch; None while it has one."""
        self._watch = Watch(self.core)
        self._control = Control(self.core, self._watch)
        self._tensorboard = EventWriter(folder.tensorboard, self._resumed.purge_step)
        self._tensorboard.hparams(flatten(config))
        shown = config.model_dump_json(indent=2, by_alias=True)
        self._tensorboard.text(self.core.step, "run/config", f"```\n{shown}\n```")
        self._steps = StepLoop(
            self.core, self._watch, self._control, self._publisher, self._tensorboard, hub
        )
        self._steps.show_again()
        self.lives = Lives(self.core, hub, self._publisher, self._watch, self._tensorboard)
        self._last_save = LastSave(self.core, hub, LEARNER)
        self._pids: dict[str, int] = {"coordinator": os.getpid()}
        self._waiting_generators: list[str] = []
        self._in_training: Plan | None = None
        self._learner_ready = False
        self._learner_lives = True
        self._learner_said_hello = False
        self._has_asked = False
        self._state = "starting"
        self._status_s = 0.0
        self._budget = BudgetKeeper(
            self.core, self._publisher, self._tensorboard, self._resumed.learner["checkpoint"]
        )
        self._disk = DiskPause(self.core, lambda: self._write_status(force=True))
        self._cause: str | None = None
        """Why the run ends as failed."""

    async def run(self) -> None:
        """Until the last step is done and scored, or a stop was asked for."""
        while not self._is_over():
            received = await self._collect()
            if not self._disk.has_room():
                await self._disk.hold(received, self._watch.heartbeat)
                self._write_status()
                continue
            await self._commit([*self._disk.release(), *received])
            await self._let_out()
            self._steps.show()
            if self.core.fatal is not None and self._cause is None:
                self._fail(self.core.fatal, kind="groups_missing")
            is_idle = self._learner_ready and self._in_training is None
            await self._cutter.look(self._wait if is_idle and not self.core.is_stopping else None)
            self._write_status()
        await self._say_stop()
        if self._cause is not None:
            raise ProcessFailure(self._cause)

    def request_stop(self) -> None:
        """SIGTERM: finish the step in training, save, stop."""
        if not self.core.is_stopping:
            log.info("stop asked for: the step in training is finished first")
        self.core.is_stopping = True
        self._state = "stopping"

    def _fail(self, cause: str, *, kind: str) -> None:
        """End the run in order, with this cause: what is done is saved, `--resume` goes on."""
        self._cause = cause
        self.core.alert(cause, kind=kind)
        self.request_stop()

    def _is_over(self) -> bool:
        core = self.core
        if core.is_stopping:
            # Nobody will report a step that died with its learner.
            is_saved = self._in_training is None and self._last_save.is_done
            return is_saved or not self._learner_lives
        return (
            core.step >= core.config.train.steps
            and self._learner_ready
            and self._in_training is None
            and self._publisher.newest is not None
            and self._publisher.is_settled
        )

    async def _collect(self) -> list[Received]:
        received: list[Received] = []
        if self._disk.holds_enough:
            return received
        try:
            received.append(await asyncio.wait_for(self._hub.receive(), TURN_S))
        except TimeoutError:
            return received
        while len(received) < MOST_PER_TURN:
            more = self._hub.receive_nowait()
            if more is None:
                break
            received.append(more)
        return received

    async def _commit(self, received: list[Received]) -> None:
        """One transaction for all that arrived; a finished step has a durable one of its own."""
        if not received and not self.lives.news:
            return
        with self.core.ledger.transaction():
            while self.lives.news:
                self._take_news(self.lives.news.popleft())
            for item in received:
                if not isinstance(item.message, m.StepReport):
                    await self._handle(item.peer, item.message)
            self.core.save_state()
        for item in received:
            if isinstance(item.message, m.StepReport):
                self._finish_step(item.message)
        if self._learner_said_hello:
            await self._welcome_learner()
        for item in received:
            item.ack()

    def _take_news(self, news: News) -> None:
        self._learner_lives &= news.name != LEARNER
        self.lives.died(news)
        self._waiting_generators = [n for n in self._waiting_generators if n != news.name]
        self._status_s = 0.0

    async def _handle(self, peer: str, message: m.Message) -> None:
        match message:
            case m.Heartbeat():
                self._watch.heartbeat(message)
                if (text := self._watch.jail_text()) is not None:
                    self._tensorboard.text(self.core.step, "run/jail", text)
            case m.EpisodeResult(purpose="eval"):
                self._scored(self._evaluation.on_result(message))
            case m.EpisodeResult():
                self._plays.on_result(message)
            case m.TaskCut():
                self._cutter.on_ended(message)
            case m.DesignResult():
                self._designs.on_result(message)
            case m.Credit():
                self.core.dispatcher.set_credit(peer, message.tasks)
            case m.WeightsLoaded():
                self._publisher.on_loaded(peer, message)
            case m.Hello():
                await self._hello(peer, message)
            case m.WeightsPublished():
                await self._first_weights(message)
            case m.CheckpointSaved():
                self._last_save.on_saved(message)
            case m.ProcessFailed():
                self._watch.failure = f"{message.name}: {message.boundary}: {message.message}"
                log.error("%s", self._watch.failure)
                self._status_s = 0.0
            case _:
                log.error("%s sent %s, which it never should", peer, type(message).__name__)

    async def _hello(self, peer: str, hello: m.Hello) -> None:
        if peer in self._pids:
            self.lives.back(peer)
        self._pids[peer] = hello.pid
        if hello.schema != m.SCHEMA:
            error = f"schema {hello.schema}, this run speaks {m.SCHEMA}: install one version"
            await self._hub.send(peer, m.Welcome(error=error))
        elif peer == LEARNER:
            self._learner_said_hello = True
        else:
            self._publisher.add_generator(peer)
            self._waiting_generators.append(peer)
            await self._welcome_generators()

    async def _welcome_learner(self) -> None:
        """Outside of transactions, and after the last report of the one before."""
        self._learner_said_hello = False
        self._learner_lives = True
        if self._learner_ready:
            self._learner_ready = False
            self._in_training = None
            self._steps.show()  # before steps are undone: what is shown later stays
            self.lives.fall_back(self._resumed)
            self._last_save.loaded()
        await self._hub.send(LEARNER, m.Welcome(resume=self._resumed.learner))

    async def _first_weights(self, message: m.WeightsPublished) -> None:
        """The learner has loaded what it resumes from and put the weights into the store."""
        core = self.core
        version = PolicyVersion.unpack(message.version)
        assert version == (core.branch, core.step), f"learner starts from {version}"
        core.ledger.add_version(
            core.schedule.learner_ordinal,
            version,
            message.digest,
            message.location,
            self._resumed.learner.get("checkpoint"),
            steady_unix_s(),
        )
        self._publisher.announce(message)
        if not self._has_asked:
            self._has_asked = True
            self._designs.ask_again()
            self._plays.ask_again()
        self._learner_ready = True
        self._state = "running"
        await self._welcome_generators()

    async def _welcome_generators(self) -> None:
        if self._publisher.newest is None:
            return
        for peer in self._waiting_generators:
            await self._hub.send(peer, m.Welcome(resume=self._publisher.welcome()))
        self._waiting_generators.clear()

    def _finish_step(self, report: m.StepReport) -> None:
        plan = self._in_training
        if plan is None or (report.branch, report.step) != (self.core.branch, self.core.step + 1):
            log.warning(
                "report of %d.%d is not of the step in training", report.branch, report.step
            )
            return
        self._in_training = None
        self._steps.finish(report, plan)
        self._last_save.step(report.checkpoint)
        self._budget.after_step(report.checkpoint)
        cause = self._steps.nonfinite_stop(report)
        if cause is not None:
            self._fail(cause, kind="nonfinite_stop")

    def _scored(self, result: EvalResult | None) -> None:
        if result is not None:
            self._steps.scored(result)

    async def _let_out(self) -> None:
        core = self.core
        if self._learner_ready and not core.is_stopping:
            with core.ledger.transaction():
                self._replays.turn()
                self._plays.start_waiting()
                core.schedule.close_when_enough(core.config.train.steps - core.step)
                if core.step < core.config.train.steps:
                    self._designs.admit()
                    self._plays.admit_pool()
                core.save_state()
        await self._publisher.pump()
        await core.dispatcher.pump()
        waits = self._learner_ready and self._in_training is None and self._wait is not None
        self._control.turn(learner_waits=waits)
        is_held = self._learner_ready and core.dispatcher.num_idle_credit > 0
        self._watch.bound_holds(is_held and not self._control.holds_now)
        await self._train()

    async def _train(self) -> None:
        core = self.core
        idle = self._learner_ready and self._learner_lives and self._in_training is None
        if idle and core.is_stopping:
            await self._last_save.ask()
        if not idle or core.is_stopping or core.step >= core.config.train.steps:
            return
        with core.ledger.transaction():
            plan = self._next_plan()
            if plan is None:
                return
            self._steps.plan(plan, core.step + 1)
        self._in_training = plan
        self.core.waits_for = f"{LEARNER}: step {core.step + 1}"
        message = self._batches.message(
            plan,
            branch=core.branch,
            step=core.step + 1,
            checkpoint=self._steps.is_last_try,
        )
        core.timings.taken(core.schedule.learner_ordinal + 1, message)
        await self._hub.send(LEARNER, message)

    def _next_plan(self) -> Plan | None:
        if self._resumed.replay:
            self.core.schedule.begin_replay()
            return self._resumed.replay.pop(0)
        take = self._replays.take()
        self._wait = take if isinstance(take, Wait) else None
        if isinstance(take, Wait):
            self.core.waits_for = " ".join(filter(None, (take.reason, take.role, take.waits_for)))
            return None
        self._control.taken(take)
        plan = self._batches.compose(take)
        if plan.rows:
            return plan
        self.core.batch_came_to_nothing(plan.group_ids, plan.left_out)
        self.core.schedule.step_cancelled()
        self.core.forget(plan.group_ids)
        return None

    def _write_status(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._status_s < STATUS_S:
            return
        self._status_s = now
        self._watch.hangs.wait_for_us(self._waiting_generators)
        status = self._watch.status(self._state, self._steps.newest, self._pids)
        if self._disk.is_paused:
            status.limited_by, status.hung = self._disk.waits_for, []
        self._tensorboard.flush_if_due()
        self.core.alerts.write()
        try:
            write_status(self.core.folder.status, status)
        except OSError as cause:
            # A status is a courtesy: the next one comes in a second.
            log.warning("%s cannot be written: %s", self.core.folder.status, cause)

    async def _say_stop(self) -> None:
        core = self.core
        finished = core.step >= core.config.train.steps
        self._state = "finished" if finished else "stopped"
        if self._cause is not None:
            self._state, self._watch.failure = "failed", self._cause
        with core.ledger.transaction(full=True):
            core.save_state()
            core.timings.still_out(core.ledger, core.dispatcher.running.values())
            if finished:
                self._replays.finish()
        self._steps.show()
        for peer in self._hub.peers():
            await self._hub.send(peer, m.Stop(reason=self._state, finish=False))
        if core.unshown_alerts:
            # At the step after the last one: a resume purges it and goes on there.
            self._steps.show_alerts(core.step + 1)
        self._tensorboard.close()
        await self._hub.close(timeout_s=2.0)
        core.ledger.close()
        core.alerts.close()
        self._write_status(force=True)
