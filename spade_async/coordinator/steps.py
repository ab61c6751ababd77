"""One learner step in the ledger: planned before it is sent, consumed when it is reported.

Consumption, the new version and the step's numbers are one durable transaction; TensorBoard follows
it, so an event never speaks of a step the ledger does not have.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from spade_async.config.correction import supported_kl
from spade_async.coordinator import hints
from spade_async.coordinator.batch import Plan, PlannedRow
from spade_async.coordinator.control import Control
from spade_async.coordinator.core import Core
from spade_async.coordinator.divergence import DivergenceWatch
from spade_async.coordinator.evaluation import EvalResult
from spade_async.coordinator.forgetting import family_tags
from spade_async.coordinator.link_figures import LinkFigures
from spade_async.coordinator.pay_window import held_figures
from spade_async.coordinator.publish import Publisher
from spade_async.coordinator.watch import Watch
from spade_async.coordinator.window import mean
from spade_async.ledger import BatchSample
from spade_async.telemetry.alerts import Alert
from spade_async.telemetry.clock import steady_unix_s
from spade_async.telemetry.tensorboard import EventWriter
from spade_async.transport.hub import Hub
from spade_async.transport.messages import StepReport, WeightsPublished
from spade_async.types import Arm, PolicyVersion, Role

log = logging.getLogger(__name__)

TRACES_KEPT_STEPS = 8
"""Tokens of consumed samples stay in the ledger this many steps beyond the kept checkpoints."""


@dataclass(slots=True)
class _Shown:
    """A committed step that people have not seen yet."""

    report: StepReport
    rows: list[PlannedRow]
    regrets: list[float]
    returns: list[float]
    metrics: dict[str, float] = field(default_factory=dict)
    alerts: list[Alert] = field(default_factory=list)


class StepLoop:
    """Owns the numbers of a step and its commit."""

    def __init__(
        self,
        core: Core,
        watch: Watch,
        control: Control,
        publisher: Publisher,
        tensorboard: EventWriter,
        link: Hub,
    ) -> None:
        self._core = core
        self._watch = watch
        self._control = control
        self._publisher = publisher
        self._tensorboard = tensorboard
        self._link = LinkFigures(link, core.dispatcher)
        self._last_step_s = time.monotonic()
        correction = core.config.learner.correction
        self._divergence = DivergenceWatch(correction.rule, supported_kl(correction))
        self._nonfinite_in_a_row = 0
        self._unshown: deque[_Shown] = deque()
        self.newest: dict[str, float] = {}
        """Newest value of each tag."""

    def plan(self, plan: Plan, step: int) -> None:
        """Write the composition before it is sent, so that a crash repeats it."""
        core = self._core
        ordinal = core.schedule.learner_ordinal + 1
        samples = [
            BatchSample(r.sample_id, r.group_id, r.advantage, r.staleness) for r in plan.rows
        ]
        core.ledger.plan_batch(ordinal, core.branch, step, samples, replays=plan.replays)

    @property
    def is_last_try(self) -> bool:
        """Whether the run ends if the next update is not finite either: it needs a checkpoint."""
        return self._nonfinite_in_a_row + 1 >= self._core.config.learner.max_nonfinite

    def nonfinite_stop(self, report: StepReport) -> str | None:
        """Why the run has to end after this step, in one line; None when it goes on."""
        limit, root = self._core.config.learner.max_nonfinite, self._core.folder.root
        if self._nonfinite_in_a_row < limit:
            return None
        batch = str(report.quarantine).removesuffix(".npz")
        return (
            f"learner: {limit} updates in a row were not finite (learner.max_nonfinite={limit}), "
            f"the last is {batch}; checkpoint {report.checkpoint} is saved; look with spade-async "
            f"replay {root} {batch}, go on with spade-async train {root} --resume"
        )

    def finish(self, report: StepReport, plan: Plan) -> None:
        """Commit a step, count it, announce its weights. `show` has to follow.

        What only people look at waits for `show`: learner and generators wait for this.
        """
        rows = plan.rows
        core = self._core
        ordinal = core.schedule.learner_ordinal + 1
        version = PolicyVersion(report.branch, report.step)
        shown = _Shown(
            report, rows, regrets=core.window.regrets(), returns=core.window.returns(Arm.NO_HINT)
        )
        shown.metrics = metrics = self._metrics(report, rows)
        with core.ledger.transaction(full=True):
            self._count(report, rows)
            core.step = report.step
            core.ledger.consume_batch(ordinal, report, steady_unix_s(), metrics)
            core.timings.trained(ordinal, report)
            core.save_state()
        core.versions.add(version, ordinal)
        core.schedule.step_finished(ordinal)
        core.fruitless.step_made()
        core.forget(plan.group_ids)
        self.newest.update(metrics)
        self._publisher.announce(
            WeightsPublished(
                version=version.packed,
                location=report.location,
                digest=report.digest,
                attestation=report.attestation,
            )
        )
        shown.alerts = list(core.unshown_alerts)
        core.unshown_alerts.clear()
        self._unshown.append(shown)
        self._log(report, rows)

    def show(self) -> None:
        """Curves, distributions and texts of the steps that were finished since the last call."""
        while self._unshown:
            shown = self._unshown.popleft()
            step = shown.report.step
            self._tensorboard.histogram(step, "hist/regret", shown.regrets)
            self._tensorboard.histogram(step, "hist/episode_return", shown.returns)
            ages = [row.staleness for row in shown.rows]
            self._tensorboard.histogram(step, "hist/staleness", ages)
            self._tensorboard.scalars(step, shown.metrics)
            self._show(step)
            if self._control.news is not None:
                self._tensorboard.text(step, "run/in_flight", self._control.news)
            self._tensorboard.alerts(step, shown.alerts)
            self._tensorboard.flush()
            self._core.shown_step = step
            self._drop_traces()

    def scored(self, result: EvalResult) -> None:
        """Store and plot a held-out evaluation (inside the caller's transaction)."""
        core = self._core
        for level, (n, accuracy, error) in result.levels.items():
            core.ledger.add_eval(
                core.versions.ordinal(result.version.packed) or 0,
                result.version,
                level,
                n,
                accuracy,
                error,
            )
        core.ledger.add_scores(
            result.version, [(s.key, s.level, s.episode_return) for s in result.scores]
        )
        tags = _eval_tags({level: scores[:2] for level, scores in result.levels.items()})
        tags |= family_tags(result.scores)
        drop, alarms = core.guards.scored(result.step, result.scores)
        if drop is not None:
            tags["guards/forgetting"] = drop
        for told in alarms:
            core.alert(told.text, kind=told.kind)
        self._tensorboard.scalars(result.step, tags)
        self._tensorboard.flush()
        self.newest.update(tags)
        log.info("evaluation of version %s: %s", result.version, tags)

    def show_again(self) -> None:
        """Write the points of committed steps that a killed coordinator may not have written.

        The reader has purged everything after `Core.shown_step`. Distributions and texts of those
        steps are gone; their numbers are in the ledger.
        """
        core = self._core
        for row in core.ledger.steps():
            if core.shown_step < row.step <= core.step:
                self._tensorboard.scalars(row.step, row.metrics)
        levels: dict[int, dict[str, tuple[int, float]]] = {}
        for found in core.ledger.evals():
            if core.shown_step < found.version.step <= core.step and found.mean is not None:
                # By ordinal: a step that was repeated shows what survived.
                scores = levels.setdefault(found.version.step, {})
                scores[found.level] = (found.num_instances, found.mean)
        for step, scores in levels.items():
            self._tensorboard.scalars(step, _eval_tags(scores))
        self._tensorboard.flush()
        core.shown_step = core.step

    def show_alerts(self, step: int) -> None:
        """Write the alerts since the last step to TensorBoard."""
        self._tensorboard.alerts(step, self._core.unshown_alerts)
        self._core.unshown_alerts.clear()

    def _metrics(self, report: StepReport, rows: list[PlannedRow]) -> dict[str, float]:
        core = self._core
        now = time.monotonic()
        found: dict[str, float | None] = {**self._watch.step(), **core.window.flush()}
        found |= core.pay_window.flush()
        if core.config.designer.reward.delay:
            now_at = core.schedule.learner_ordinal
            waiting = [(len(g.held), now_at - g.birth) for g in core.design_groups.values()]
            found |= held_figures((count, age) for count, age in waiting if count)
        found |= self._control.step()
        found |= report.metrics
        nonfinite = core.counters["nonfinite_updates"] + (not report.applied)
        found["learner/nonfinite"] = float(nonfinite)
        found["learner/step_s"] = now - self._last_step_s
        self._last_step_s = now
        if report.busy_s + report.wait_s > 0:
            idle = report.wait_s / (report.busy_s + report.wait_s)
            found["learner/idle_share"] = self._watch.idle_shares["learner"] = idle
        for role in Role:
            ages = [r.staleness for r in rows if r.role is role]
            if ages:
                found[f"staleness/{role}_mean"] = mean(ages)
                found[f"staleness/{role}_max"] = float(max(ages))
        found |= core.diversity.metrics() | core.corpus.metrics()
        found |= core.memory.metrics() | core.seed_pool.figures()
        found |= core.guards.figures() | hints.figures(core)
        found["designer/skeletons_per_batch"] = self._num_skeletons(rows)
        found["tokens/cut_at_deadline"] = float(core.counters["tokens_cut_at_deadline"])
        found["tokens/discarded_for_age"] = float(core.counters["tokens_discarded_for_age"])
        found |= self._queues()
        found |= self._publisher.figures()
        found |= core.life.step(core.counters)
        return {tag: float(value) for tag, value in found.items() if value is not None}

    def _queues(self) -> dict[str, float | None]:
        core = self._core
        counts = core.schedule.counts()
        found: dict[str, float | None] = dict(self._link.metrics(self._watch.beats))
        for role in Role:
            ready, running = counts[f"{role}_ready"], counts[f"{role}_running"]
            found[f"queue/ready_{role}"] = float(ready)
            found[f"queue/outstanding_{role}"] = float(ready + running)
        born_s = [group.created_s for group in core.design_groups.values()]
        born_s += [play.created_s for play in core.play_groups.values()]
        if born_s:
            found["queue/oldest_age_s"] = time.monotonic() - min(born_s)
        return found

    def _show(self, step: int) -> None:
        """The newest environments with hint and both transcripts, as text."""
        while self._core.newest:
            play, estimate = self._core.newest.popleft()
            texts = [
                f"--- {arm} ---\n{shown.transcript}" for arm, shown in sorted(play.shown.items())
            ]
            hinted = play.shown.get(Arm.WITH_HINT)
            labels = ", ".join(f"{name} {value}" for name, value in play.environment.labels)
            self._tensorboard.environment(
                step,
                source=play.environment.source,
                hint=play.environment.hint or (hinted.hint if hinted else None),
                transcript="\n".join(texts),
                note=(
                    f"{play.environment.environment_id} ({labels}): regret {estimate.regret:+.2f}"
                    f"{_error(estimate.standard_error)}, "
                    f"leak {play.environment.leak_share:.2f}, {estimate.regret_class}"
                ),
            )

    def _num_skeletons(self, rows: list[PlannedRow]) -> float | None:
        """Distinct skeletons among the valid designs of the batch; None without a design."""
        designs = [self._core.ledger.sample(r.sample_id) for r in rows if r.role is Role.DESIGNER]
        found = {
            json.loads(design.labels_json).get("skeleton")
            for design in designs
            if design is not None and design.rejection_stage is None
        }
        return float(len(found)) if designs else None

    def _count(self, report: StepReport, rows: list[PlannedRow]) -> None:
        counters = self._core.counters
        agent_bound, designer_bound = self._core.config.async_.bounds
        counters["steps"] += 1
        counters["samples_trained"] += len(rows)
        counters["samples_over_bound"] += sum(
            r.staleness > (agent_bound if r.role is Role.AGENT else designer_bound) for r in rows
        )
        counters["nonfinite_updates"] += not report.applied
        counters["updates_skipped"] += report.metrics.get("learner/skipped", 0.0) > 0
        counters["learner_busy_us"] += int(report.busy_s * 1e6)
        counters["learner_idle_us"] += int(report.wait_s * 1e6)
        self._nonfinite_in_a_row = 0 if report.applied else self._nonfinite_in_a_row + 1
        if report.metrics.get("learner/skipped", 0.0) > 0:
            self._core.alert(
                f"step {report.step}: nothing to apply, "
                f'learner.correction.rule="{self._core.config.learner.correction.rule}" let no '
                f"token of {len(rows)} samples through",
                kind="update_skipped",
            )
        for told in self._core.guards.step(report.step):
            self._core.alert(told.text, kind=told.kind)
        far = self._divergence.observe(report.metrics.get("learner/kl_generator"))
        if far is not None:
            self._core.alert(f"step {report.step}: {far}", kind="divergence")
        if not report.applied:
            self._core.alert(
                f"step {report.step}: the update was not finite, the batch is set aside as "
                f"{report.quarantine}",
                kind="nonfinite_update",
                action="scripted.nonfinite_steps asked for it"
                if self._core.config.is_scripted
                else f"spade-async replay {self._core.folder.root} {report.quarantine}",
            )

    def _drop_traces(self) -> None:
        """Tokens of samples that no fall-back can need any more leave the ledger."""
        core = self._core
        kept = core.config.checkpoint.every * core.config.checkpoint.keep + TRACES_KEPT_STEPS
        if core.step % TRACES_KEPT_STEPS == 0:
            with core.ledger.transaction():
                core.ledger.drop_traces(core.schedule.learner_ordinal - kept)

    def _log(self, report: StepReport, rows: list[PlannedRow]) -> None:
        log.info(
            "step %d version %d.%d samples=%d loss=%s busy_s=%.2f wait_s=%.2f",
            report.step,
            report.branch,
            report.step,
            len(rows),
            report.metrics.get("learner/loss"),
            report.busy_s,
            report.wait_s,
        )


def _error(standard_error: float | None) -> str:
    return "" if standard_error is None else f" +- {standard_error:.2f}"


def _eval_tags(levels: Mapping[str, tuple[int, float]]) -> dict[str, float]:
    """Points of an evaluation from level -> (instances, accuracy)."""
    tags = {f"eval/level/{level}/accuracy": accuracy for level, (_, accuracy) in levels.items()}
    total = sum(n for n, _ in levels.values())
    if total:
        tags["eval/accuracy"] = sum(n * accuracy for n, accuracy in levels.values()) / total
    return tags
