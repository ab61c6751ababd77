"""Held-out evaluation on one stated version: never trained, and never of mixed versions.

While an evaluation is out, newer weights are held back from the generators, so every token of it
is of the version it states. The same items and sampling seeds each time.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from spade_async.coordinator.core import Core
from spade_async.coordinator.dispatch import EVALUATION, Task
from spade_async.coordinator.forgetting import Scored
from spade_async.environment.contract import environment_id
from spade_async.seeds import derive
from spade_async.transport.messages import EpisodeResult, PlayTask
from spade_async.types import Arm, PolicyVersion

log = logging.getLogger(__name__)

LEVEL_LABEL = "level"
"""Label of a program that says the same as `HeldOutItem.level`."""


@dataclass(slots=True)
class EvalRun:
    """One evaluation in progress."""

    version: PolicyVersion
    step: int
    levels: dict[str, str]
    """task id -> level."""
    groups: dict[str, tuple[str, ...]]
    """task id -> "level 1", "family sort", ...: what its episodes count for."""
    waiting_for: set[tuple[str, int]]
    returns: dict[str, list[float]] = field(default_factory=dict)
    scores: list[Scored] = field(default_factory=list)
    missing: int = 0


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Scores of one version: level -> (n, mean, standard error)."""

    version: PolicyVersion
    step: int
    levels: dict[str, tuple[int, float, float | None]]
    missing: int
    scores: tuple[Scored, ...] = ()
    """Every scored instance by itself."""


def success(returns: Sequence[float], num_missing: int) -> tuple[float | None, float]:
    """Mean over the episodes that came (None without one), and over all that were expected.

    In the second what is missing counts as a failure, whoever's fault it is: no system looks better
    for the episodes that it lost. Source: SPADE's `pass_at_1_clean` and `pass_at_1`.

    Args:
        returns: of the episodes that came.
        num_missing: of those that were expected beside them; at least one in all.
    """
    expected = len(returns) + num_missing
    if not expected:
        raise ValueError("no episode was expected: there is no success to state")
    total = math.fsum(returns)
    return (total / len(returns) if returns else None), total / expected


class Evaluation:
    """Starts evaluations and collects their episodes."""

    def __init__(self, core: Core) -> None:
        self._core = core
        items = core.domain.held_out(core.config.eval.instances_per_level)
        grouped: dict[tuple[str, str], list[int]] = {}
        for item in items:
            grouped.setdefault((item.level, item.source), []).append(item.seed)
        self._items = grouped
        self.running: EvalRun | None = None

    def is_due(self, step: int) -> bool:
        """Whether the weights of this step are to be scored."""
        config = self._core.config
        return bool(self._items) and (step % config.eval.every == 0 or step >= config.train.steps)

    def start(self, version: PolicyVersion) -> None:
        """Queue the held-out set for one version; the caller holds back newer weights."""
        assert self.running is None, "one evaluation at a time"
        core, config = self._core, self._core.config
        run = EvalRun(version=version, step=version.step, levels={}, groups={}, waiting_for=set())
        self.running = run
        for number, ((level, source), seeds) in enumerate(self._items.items()):
            task_id = f"e-{version}-{number}"
            run.levels[task_id] = level
            run.groups[task_id] = _groups(level, core.domain.labels(source))
            run.waiting_for |= {(task_id, i) for i in range(len(seeds))}
            message = PlayTask(
                task_id=task_id,
                group_id="evaluation",
                environment_id=environment_id(source),
                source=source,
                hint=None,
                hint_mode="none",
                arm=Arm.NO_HINT,
                seeds=seeds,
                min_version=version.packed,
                max_turns=config.agent.max_turns,
                max_new_tokens=config.agent.max_new_tokens_per_turn,
                temperature=config.eval.temperature,
                purpose="eval",
                # The same numbers at every evaluation: differences are of the policy, not of luck.
                seed=derive(config.run.seed, "evaluation", number),
            )
            core.dispatcher.submit(
                Task(message=message, waiting_for=set(range(len(seeds)))),
                kind=EVALUATION,
                number=number,
            )

    def on_result(self, result: EpisodeResult) -> EvalResult | None:
        """Take in one episode; the scores when it was the last."""
        run = self.running
        self._core.dispatcher.result(result.task_id, result.index)
        if run is None or (result.task_id, result.index) not in run.waiting_for:
            return None
        run.waiting_for.discard((result.task_id, result.index))
        sampled = result.versions[result.loss_mask == 1]
        if result.episode_return is None or (sampled != run.version.packed).any():
            if result.episode_return is not None:
                log.error("%s was not played on version %s", result.task_id, run.version)
            run.missing += 1
        else:
            level = run.levels[result.task_id]
            run.returns.setdefault(level, []).append(result.episode_return)
            # The number of a task is the same at every evaluation, its id names the version.
            key = f"{result.task_id.rpartition('-')[2]}.{result.index}"
            groups = run.groups[result.task_id]
            run.scores.append(Scored(key, groups, result.episode_return, level))
        return self._finish() if not run.waiting_for else None

    def cut(self, task: Task) -> EvalResult | None:
        """Episodes that did not come back are missing; the rest is scored."""
        run = self.running
        if run is None or task.task_id not in run.levels:
            return None
        for index in task.waiting_for:
            run.waiting_for.discard((task.task_id, index))
            run.missing += 1
        return self._finish() if not run.waiting_for else None

    def give_up(self) -> None:
        """Forget the evaluation in progress; what still comes of it is ignored."""
        self.running = None

    def _finish(self) -> EvalResult:
        run, self.running = self.running, None
        assert run is not None
        levels: dict[str, tuple[int, float, float | None]] = {}
        for level, returns in sorted(run.returns.items()):
            n = len(returns)
            mean = sum(returns) / n
            # One instance has no spread: its standard error is missing, not 0.
            squares = sum((r - mean) ** 2 for r in returns)
            error = (squares / (n - 1) / n) ** 0.5 if n > 1 else None
            levels[level] = (n, mean, error)
        if run.missing:
            came = [value for returns in run.returns.values() for value in returns]
            clean, strict = success(came, run.missing)
            told = "" if clean is None else (
                f": success {clean:.3f} over those that came, {strict:.3f} if the others had failed"
            )  # fmt: skip
            self._core.alert(
                f"evaluation of version {run.version}: {run.missing} of {run.missing + len(came)} "
                f"episodes are missing{told}",
                kind="evaluation_missing",
            )
        return EvalResult(run.version, run.step, levels, run.missing, tuple(run.scores))


def _groups(level: str, labels: dict[str, str]) -> tuple[str, ...]:
    others = (f"{name} {value}" for name, value in sorted(labels.items()) if name != LEVEL_LABEL)
    return (f"{LEVEL_LABEL} {level}", *others)
