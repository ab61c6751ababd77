"""Generators in virtual time: tasks by credit and in order of need, requests by slots.

Hands out as `coordinator/dispatch.py` does: plays of the oldest design before designs, to the
generator with the most room under its credit. Inside a generator requests take slots first come,
first served.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from spade_async.simulate.timeline import Timeline
from spade_async.simulate.workload import Piece


@dataclass(slots=True, eq=False)
class SimTask:
    """A design, or one arm of a play."""

    pieces: tuple[Piece, ...]
    finished: Callable[[], None]
    """Called when all pieces are in."""
    is_play: bool = False
    left: list[Piece] = field(default_factory=list)
    """Pieces that are not in."""
    rank: tuple[int, int] = (0, 0)
    """Order of need: (kind, number)."""


@dataclass(slots=True)
class _Generator:
    held: int = 0
    """Tasks."""
    sequences: int = 0
    """Pieces that its tasks still owe."""
    active: int = 0
    queue: deque[tuple[SimTask, Piece]] = field(default_factory=deque)
    tasks: list[SimTask] = field(default_factory=list)
    is_dead: bool = False
    """Nothing it still has to do will come; another one stands in its place."""
    is_up: bool = True


@dataclass(slots=True)
class FleetTimes:
    """Sums over time in seconds."""

    idle_s: float = 0.0
    """Generators with nothing active, summed over generators."""
    slot_s: float = 0.0
    """Active requests."""
    full_s: float = 0.0
    """Generators whose slots or credit are all taken while work waits for one."""
    starved_s: float = 0.0
    """All queues empty while there is credit: the schedule lets no task out."""
    episodes: int = 0
    """Finished, both arms."""


class Fleet:
    """Some equal generators.

    Args:
        timeline: virtual time.
        generators: how many.
        slots: requests decoded together by one.
        credit: tasks that one may hold.
        latency_s: from the coordinator's decision to the first token, per task.
    """

    def __init__(
        self,
        timeline: Timeline,
        *,
        generators: int,
        slots: int,
        credit: int,
        latency_s: float = 0.0,
    ) -> None:
        self._timeline = timeline
        self._slots, self._credit, self._latency_s = slots, credit, latency_s
        self._generators = [_Generator() for _ in range(generators)]
        self._queue: list[tuple[tuple[int, int], int, SimTask]] = []
        self._order = itertools.count()
        self.limit: int | None = None
        """Pieces up to which a generator gets more tasks; an idle one always gets one."""
        self.times = FleetTimes()
        """Set a new one to count from now."""

    def submit(self, task: SimTask, *, kind: int, number: int) -> None:
        """Queue a task under the dispatcher's order (`EVALUATION`, `PLAY`, `DESIGN`; number)."""
        task.left, task.rank = list(task.pieces), (kind, number)
        heapq.heappush(self._queue, (task.rank, next(self._order), task))

    def kill(self, index: int, down_s: float) -> None:
        """A generator dies: its tasks go back to the queue; another is up after `down_s`."""
        dead = self._generators[index]
        dead.is_dead = True
        for task in dead.tasks:
            heapq.heappush(self._queue, (task.rank, next(self._order), task))
        fresh = self._generators[index] = _Generator(is_up=False)
        self._timeline.after(down_s, partial(setattr, fresh, "is_up", True))

    @property
    def num_sequences(self) -> int:
        """Pieces that tasks at the generators still owe."""
        return sum(generator.sequences for generator in self._generators)

    @property
    def num_waiting(self) -> int:
        """Tasks nobody works on."""
        return len(self._queue)

    def _may_get(self, generator: _Generator) -> bool:
        within = self.limit is None or not generator.sequences or generator.sequences < self.limit
        return within and generator.is_up and generator.held < self._credit

    def pump(self) -> None:
        """Send what credit and limit allow."""
        while self._queue:
            free = [generator for generator in self._generators if self._may_get(generator)]
            if not free:
                return
            generator = min(free, key=lambda g: (g.sequences, g.held))
            _, _, task = heapq.heappop(self._queue)
            generator.held += 1
            generator.sequences += len(task.left)
            generator.tasks.append(task)
            if self._latency_s:
                self._timeline.after(self._latency_s, partial(self._arrive, generator, task))
            else:
                self._arrive(generator, task)

    def pass_time(self, span_s: float) -> None:
        """Add a stretch of time in which nothing changed to the sums."""
        times = self.times
        is_starved = not self._queue
        for generator in self._generators:
            times.slot_s += span_s * generator.active
            times.idle_s += span_s * (generator.active == 0)
            waits = bool(generator.queue) or (bool(self._queue) and not self._may_get(generator))
            times.full_s += span_s * waits
            is_starved = is_starved and not waits and generator.active < self._slots
        times.starved_s += span_s * is_starved

    def _arrive(self, generator: _Generator, task: SimTask) -> None:
        if not generator.is_dead:
            generator.queue.extend((task, piece) for piece in task.left)
            self._fill(generator)

    def _fill(self, generator: _Generator) -> None:
        while generator.queue and generator.active < self._slots:
            task, piece = generator.queue.popleft()
            generator.active += 1
            self._timeline.after(piece.slot_s, partial(self._decoded, generator, task, piece))

    def _decoded(self, generator: _Generator, task: SimTask, piece: Piece) -> None:
        if generator.is_dead:
            return
        generator.active -= 1
        self._fill(generator)
        if piece.other_s > 0.0:
            self._timeline.after(piece.other_s, partial(self._in, generator, task, piece))
        else:
            self._in(generator, task, piece)

    def _in(self, generator: _Generator, task: SimTask, piece: Piece) -> None:
        if generator.is_dead:
            return
        self.times.episodes += task.is_play
        generator.sequences -= 1
        task.left.remove(piece)
        if not task.left:
            generator.held -= 1
            generator.tasks.remove(task)
            task.finished()
