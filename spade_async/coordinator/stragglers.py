"""Whom the run waits for too long, and what of it is cut.

The deadline is the schedule's: nothing is cut while the learner has work. It waits for groups by
name (`Schedule.blockers`); when tasks of theirs are at the generators and `async.straggler_s` pass
in which no result of any of them arrives, what is missing of the oldest one is cut. Time in which
something else holds them back (no generator has taken them, or the weights they need are not loaded
there) does not count. An evaluation holds back newer weights, so its tasks have the same limit.

Pure but for the dispatcher's table, which it reads; the time is given.
"""

from __future__ import annotations

from collections.abc import Callable

from spade_async.coordinator.dispatch import Dispatcher, Task
from spade_async.transport.messages import PlayTask
from spade_async.types import Arm, Role

_NEXT = 0.1
"""Part of the limit after which the next group is cut when the wait goes on in silence."""

HasLoaded = Callable[[str, int], bool]
"""(generator, packed version) -> whether it has loaded that version or a later one."""


class Stragglers:
    """Owns the clock of the present wait."""

    def __init__(self, dispatcher: Dispatcher, limit_s: float, has_loaded: HasLoaded) -> None:
        self._dispatcher = dispatcher
        self._limit_s = limit_s
        self._has_loaded = has_loaded
        self._wait_s: float | None = None
        """Since when nothing came of what the learner waits for; None while it does not wait."""
        self._eval_s: float | None = None

    def waits_for(self, blockers: list[tuple[str, Role]], now_s: float) -> tuple[str, list[Task]]:
        """The learner waits for these groups, oldest first. Gives (group, tasks to cut)."""
        tasks = [t for t in self._dispatcher.running.values() if self._is_at_work(t)]
        of = {name: [t for t in tasks if _holds(t, name, role)] for name, role in blockers}
        concerned = [t for found in of.values() for t in found]
        self._wait_s = self._silent_since(self._wait_s, concerned, dict(blockers), now_s)
        if self._wait_s is None or now_s - self._wait_s <= self._limit_s:
            return "", []
        self._wait_s += _NEXT * self._limit_s
        return next((name, found) for name, found in of.items() if found)

    def waits_not(self) -> None:
        """The learner has work, or waits for nobody by name."""
        self._wait_s = None

    def evaluation(self, now_s: float) -> list[Task]:
        """Tasks of an evaluation to cut: none of its results came for the limit."""
        tasks = [t for t in self.evaluation_tasks() if self._is_at_work(t)]
        self._eval_s = self._silent_since(self._eval_s, tasks, {"evaluation": Role.AGENT}, now_s)
        if self._eval_s is None or now_s - self._eval_s <= self._limit_s:
            return []
        return tasks

    def evaluation_tasks(self) -> list[Task]:
        """Tasks of an evaluation that are at a generator."""
        return [t for t in self._dispatcher.running.values() if _is_eval(t)]

    def _is_at_work(self, task: Task) -> bool:
        peer = task.peer
        return peer is not None and self._has_loaded(peer, task.message.min_version)

    def _silent_since(
        self, before: float | None, tasks: list[Task], groups: dict[str, Role], now_s: float
    ) -> float | None:
        """Latest of: the wait began, a result came, a task was sent; None: held by something."""
        if not tasks:
            return None
        heard = self._dispatcher.heard_s
        arrived = [heard[root] for root in map(_root, groups) if root in heard]
        sent = [t.sent_s for t in tasks if t.sent_s is not None]
        # A fresh wait begins now; an older one where it was.
        return max([now_s if before is None else before, *arrived, *sent])


def _is_eval(task: Task) -> bool:
    return isinstance(task.message, PlayTask) and task.message.purpose == "eval"


def _holds(task: Task, group: str, role: Role) -> bool:
    """Whether a group waits for a task: its own, and of a designer group those of its plays."""
    message = task.message
    if role is Role.DESIGNER:
        return _root(message.group_id) == group
    is_trained = isinstance(message, PlayTask) and message.arm == Arm.NO_HINT
    return is_trained and message.group_id == group and not _is_eval(task)


def _root(group_id: str) -> str:
    """The designer group of "d-0000012.3.play"; any other name as it is."""
    return group_id.split(".")[0]
