"""Hands tasks to generators, by credit and in order of need; ends those that are cut.

Owns the queue of tasks that nobody works on and the table of those somebody does. Guarantees: a
generator never holds more than its credit; evaluation goes first, then plays of the oldest design,
then designs; the tasks of a dead generator go back to the queue (`lose`), and a result of it that
was on its way still counts.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from dataclasses import dataclass, field

from spade_async.transport.link import Hub
from spade_async.transport.messages import CancelTask, DesignTask, PlayTask

log = logging.getLogger(__name__)

EVALUATION, PLAY, DESIGN = 0, 1, 2
_MOST_HEARD = 4096
"""Groups whose newest result is remembered: more than are ever outstanding."""


@dataclass(slots=True)
class Task:
    """One task and what is still expected of it."""

    message: DesignTask | PlayTask
    waiting_for: set[int]
    """Indices of results that are not in (a design has the single index 0)."""
    submitted_s: float = field(default_factory=time.monotonic)
    sent_s: float | None = None
    peer: str | None = None
    place: tuple[int, int] = (0, 0)
    """(kind, number) it was submitted with: its place when it is queued again."""

    @property
    def task_id(self) -> str:
        """Id of the task's message."""
        return self.message.task_id


class Dispatcher:
    """Queue, credit and table of running tasks."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._queue: list[tuple[tuple[int, int], int, Task]] = []
        self._order = itertools.count()
        self._credit: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._sequences: dict[str, int] = {}
        """Per generator: results its tasks still owe (seeds of plays, designs)."""
        self.limit: int | None = None
        """Sequences up to which a generator gets more tasks; an idle one always gets one."""
        self.running: dict[str, Task] = {}
        self._ending: dict[str, Task] = {}
        """Cut tasks that their generator has not ended yet; they hold its credit until then."""
        self.heard_s: dict[str, float] = {}
        """Designer or pool group (or "evaluation") -> moment of its newest result."""
        self._queued_again: dict[str, Task] = {}

    def submit(self, task: Task, *, kind: int, number: int) -> None:
        """Queue a task; `number` is that of its design group, lower goes first."""
        task.place = (kind, number)
        heapq.heappush(self._queue, (task.place, next(self._order), task))

    def lose(self, peer: str) -> int:
        """A generator is dead: what it held is queued again, its credit is gone; how many tasks."""
        self._credit.pop(peer, None)
        self._held.pop(peer, None)
        self._sequences.pop(peer, None)
        self._ending = {i: task for i, task in self._ending.items() if task.peer != peer}
        held = [task for task in self.running.values() if task.peer == peer]
        for task in held:
            del self.running[task.task_id]
            task.peer = task.sent_s = None
            # Not forgotten while it waits: a result that was on its way may still come.
            self._queued_again[task.task_id] = task
            heapq.heappush(self._queue, (task.place, next(self._order), task))
        return len(held)

    def set_credit(self, peer: str, tasks: int) -> None:
        """A generator says how many tasks it may hold in all; 0 pauses it."""
        if tasks < 0:
            log.warning("%s gives a credit of %d: taken as 0", peer, tasks)
        self._credit[peer] = max(tasks, 0)
        self._held.setdefault(peer, 0)
        self._sequences.setdefault(peer, 0)

    @property
    def credit(self) -> int:
        """Tasks that all generators may hold."""
        return sum(self._credit.values())

    @property
    def num_held(self) -> int:
        """Tasks that generators hold."""
        return sum(self._held.values())

    @property
    def is_out_of_credit(self) -> bool:
        """Whether tasks wait although generators are there, because none takes any."""
        return bool(self._queue) and bool(self._credit) and self.credit == 0

    @property
    def num_waiting(self) -> int:
        """Tasks nobody works on."""
        return len(self._queue)

    @property
    def num_plays_waiting(self) -> int:
        """Plays nobody works on."""
        return sum(place[0] == PLAY for place, _, _ in self._queue)

    @property
    def num_idle_credit(self) -> int:
        """Tasks that generators could hold on top, while none is queued."""
        if self._queue:
            return 0
        return sum(max(self._credit[p] - self._held[p], 0) for p in self._credit if self._fits(p))

    @property
    def num_sequences(self) -> int:
        """Results that tasks at the generators still owe."""
        return sum(self._sequences.values())

    def _fits(self, peer: str) -> bool:
        """Whether a generator may get one more task by `limit`."""
        held = self._sequences[peer]
        return held == 0 or self.limit is None or held < self.limit

    async def pump(self) -> None:
        """Send what credit and limit allow, to the generator with the most room."""
        while self._queue and self._credit:
            free = [p for p in self._credit if self._held[p] < self._credit[p] and self._fits(p)]
            if not free:
                return
            peer = min(free, key=lambda p: (self._sequences[p], self._held[p]))
            _, _, task = heapq.heappop(self._queue)
            self._queued_again.pop(task.task_id, None)
            if not task.waiting_for:
                continue
            task.peer, task.sent_s = peer, time.monotonic()
            self._held[peer] += 1
            self._sequences[peer] += len(task.waiting_for)
            self.running[task.task_id] = task
            await self._hub.send(peer, task.message)

    def result(self, task_id: str, index: int) -> Task | None:
        """Count one result; None when nobody waits for it (late, after a cut)."""
        task = self.running.get(task_id) or self._queued_again.get(task_id)
        if task is None or index not in task.waiting_for:
            return None
        task.waiting_for.discard(index)
        self._hear(task.message.group_id.split(".")[0])
        if task.peer is not None:
            self._sequences[task.peer] -= 1
        if not task.waiting_for:
            self._close(task)
        return task

    def _hear(self, root: str) -> None:
        self.heard_s.pop(root, None)
        self.heard_s[root] = time.monotonic()
        if len(self.heard_s) > _MOST_HEARD:
            del self.heard_s[next(iter(self.heard_s))]

    async def cut(self, task: Task) -> None:
        """End a task: nothing of it is waited for any more, and its generator is told."""
        del self.running[task.task_id]
        if task.peer is not None and task.peer in self._held:
            self._ending[task.task_id] = task
            await self._hub.send(task.peer, CancelTask(task_id=task.task_id))

    def ended(self, task_id: str) -> None:
        """A generator has ended a cut task: its credit is free."""
        task = self._ending.pop(task_id, None)
        if task is not None:
            self._free(task)

    def oldest(self) -> tuple[str, float] | None:
        """(task id, seconds) of the task that has been out longest."""
        now = time.monotonic()
        ages = [(now - t.sent_s, t.task_id) for t in self.running.values() if t.sent_s is not None]
        if not ages:
            return None
        age, task_id = max(ages)
        return task_id, age

    def _close(self, task: Task) -> None:
        self.running.pop(task.task_id, None)
        self._free(task)

    def _free(self, task: Task) -> None:
        if task.peer is not None and task.peer in self._held:
            self._held[task.peer] -= 1
            self._sequences[task.peer] -= len(task.waiting_for)
