"""What the coordinator's loops share: one place for the state of a run, no behaviour of its own."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.coordinator.dispatch import Dispatcher
from spade_async.coordinator.fruitless import Fruitless
from spade_async.coordinator.guards import Guards
from spade_async.coordinator.life_figures import LifeFigures
from spade_async.coordinator.pay_window import PayWindow
from spade_async.coordinator.schedule import Schedule
from spade_async.coordinator.seed_pool import SeedPool
from spade_async.coordinator.state import DesignGroup, PlayGroup
from spade_async.coordinator.tags import Result, tag_problem, without_tokens
from spade_async.coordinator.timings import Timings
from spade_async.coordinator.versions import VersionBook
from spade_async.coordinator.window import StepWindow
from spade_async.designer.novelty import SkeletonQuota, SkeletonWindow
from spade_async.designer.rewards.learning_potential import Trackers
from spade_async.domain import Domain
from spade_async.errors import ProcessFailure
from spade_async.grounding.corpus import Corpus
from spade_async.grounding.diversity import Diversity
from spade_async.grounding.memory import Memory
from spade_async.ledger import Ledger
from spade_async.regret.negative import NegativeRegret
from spade_async.telemetry.alerts import Alert, Alerts
from spade_async.transport.messages import DesignTask, PlayTask
from spade_async.types import RegretEstimate, Role

CUT = "ours: cut at async.straggler_s"
"""Missing reason of a design or an episode that did not come back in time."""
NEWEST_SHOWN = 2
"""Environments shown as text per learner step."""


@dataclass(slots=True)
class Core:
    """State of a run in the coordinator's memory; the ledger is its durable form."""

    config: Config
    folder: RunFolder
    ledger: Ledger
    schedule: Schedule
    versions: VersionBook
    dispatcher: Dispatcher
    domain: Domain
    corpus: Corpus
    memory: Memory
    diversity: Diversity
    skeletons: SkeletonWindow
    quota: SkeletonQuota
    fruitless: Fruitless
    guards: Guards
    hints: NegativeRegret
    trackers: Trackers
    """Level of returns per skill."""
    pay_window: PayWindow = field(default_factory=PayWindow)
    window: StepWindow = field(default_factory=StepWindow)
    timings: Timings = field(default_factory=Timings)
    design_groups: dict[str, DesignGroup] = field(default_factory=dict)
    play_groups: dict[str, PlayGroup] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    """Totals over the life of the run; saved with every step."""
    alerts: Alerts = field(default_factory=Alerts)
    newest: deque[tuple[PlayGroup, RegretEstimate]] = field(
        default_factory=lambda: deque(maxlen=NEWEST_SHOWN)
    )
    """Environments scored lately, to be shown with the next step."""
    next_number: int = 0
    """Number of the next group; grows over resumes, so that ids are never reused."""
    branch: int = 0
    step: int = 0
    """Learner step of the newest weights, (branch, step)."""
    shown_step: int = 0
    """Last learner step whose events are on disk; what is newer is written again on a resume."""
    waits_for: str = ""
    """What the next batch waits for, by name."""
    seed_pool: SeedPool = field(init=False)
    """Where pool plays get their programs."""
    is_stopping: bool = False
    """No new work is admitted."""

    life: LifeFigures = field(default_factory=LifeFigures)
    fatal: str | None = None
    """Why the run cannot go on; it is then ended in order."""
    unshown_alerts: list[Alert] = field(default_factory=list)
    """Alerts that are not in TensorBoard yet."""
    _unsaved_alerts: list[Alert] = field(default_factory=list)
    _saved: dict[str, Any] = field(default_factory=dict)
    """State as last written, so that only changes are written."""

    def __post_init__(self) -> None:
        """Read the pool's folder.

        Raises:
            ConfigError: there is none of that name, or nothing in it can be used.
        """
        self.seed_pool = SeedPool(self.domain, self.config.agent.pool)

    def take_number(self) -> int:
        """A fresh group number."""
        self.next_number += 1
        return self.next_number - 1

    def alert(self, text: str, *, kind: str = "other", action: str = "") -> None:
        """Tell something a user should know (see `telemetry.alerts`), at any time.

        It comes into the ledger with the next `save_state`, into TensorBoard with the next step.
        """
        alert = self.alerts.tell(kind, text, step=self.step, action=action)
        if alert is not None:
            self._unsaved_alerts.append(alert)
            self.unshown_alerts.append(alert)

    def checked(self, task: DesignTask | PlayTask, result: Result) -> Result:
        """The result, or a missing one when its tokens cannot be of the versions they claim."""
        problem = tag_problem(self.versions, result, task.min_version)
        if problem is None:
            return result
        self.alert(f"{result.task_id}: wrong tags: {problem}", kind="wrong_tags")
        return without_tokens(result, problem)

    def came_to_nothing(self, role: Role, group_id: str, reasons: Iterable[str | None]) -> None:
        """A group is missing as a whole: count it, tell of it, end a run of nothing else.

        What was cut or failed by its own program's doing is not counted: others may do better.
        """
        self.counters[f"groups_missing_{role}"] += 1
        ours = [r for r in reasons if r is not None and r.startswith("ours") and r != CUT]
        if not ours:
            return
        try:
            told = self.fruitless.came_to_nothing(role, f"{group_id}: {ours[-1]}")
        except ProcessFailure as fault:
            self.fatal = self.fatal or str(fault)
            return
        if told is not None:
            self.alert(told, kind="groups_missing")

    def batch_came_to_nothing(self, group_ids: frozenset[str], left_out: Mapping[str, int]) -> None:
        """Groups were taken of which no sample can be trained: tell of it, end a run of nothing.

        Args:
            group_ids: the groups.
            left_out: why, and how many samples each; none: all were cut.
        """
        self.counters["batches_empty"] += 1
        why = ", ".join(f"{count} x {reason}" for reason, count in left_out.items())
        why = why or "all were cut"
        self.alert(
            f"step {self.step + 1}: no sample of its {len(group_ids)} groups can be trained ({why})"
            "; the step waits for other groups",
            kind="empty_batch",
        )
        try:
            self.fruitless.batch_was_empty(group_ids, why)
        except ProcessFailure as fault:
            self.fatal = self.fatal or str(fault)

    def forget(self, group_ids: Iterable[str]) -> None:
        """Take groups that stand in a batch out of memory.

        A play group whose hinted arm is still out stays, for its design.
        """
        for group_id in group_ids:
            self.design_groups.pop(group_id, None)
            play = self.play_groups.get(group_id)
            if play is not None:
                play.is_ready = False
                if play.is_complete:
                    del self.play_groups[group_id]

    def min_version(self, birth: int) -> int:
        """Packed version a generator must have loaded for a group of that birth."""
        return self.versions.newest(birth).packed

    def save_state(self) -> None:
        """Write what is not in tables of its own; call at the end of every transaction.

        All of it is small. The memory's entries are in a table.
        """
        state: dict[str, Any] = {
            "corpus": self.corpus.state(),
            "memory": self.memory.state(),
            "skeletons": self.skeletons.state(),
            "quota": self.quota.state(),
            "guards": self.guards.state(),
            "hints": self.hints.state(),
            "guards_forgetting": self.guards.forgetting.state(),
            "trackers": self.trackers.state(),
            "counters": dict(self.counters),
            "next_number": self.next_number,
            "shown_step": self.shown_step,
        }
        self.timings.write(self.ledger)
        for alert in self._unsaved_alerts:
            self.ledger.add_alert(alert.unix_s, alert.step, str(alert))
        self._unsaved_alerts.clear()
        for key, value in state.items():
            if self._saved.get(key) != value:
                self.ledger.put_state(key, value)
                self._saved[key] = value
