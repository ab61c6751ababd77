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


@dataclass(slots=True)
class SimTask:
    """A design, or one arm of a play."""

    pieces: tuple[Piece, ...]
    finished: Callable[[], None]
    """Called when all pieces are in."""
    is_play: bool = False
    left: int = 0
    """Pieces that are not in."""


@dataclass(slots=True)
class _Generator:
    held: int = 0
    """Tasks."""
    sequences: int = 0
    """Pieces that its tasks still owe."""
    active: int = 0
    queue: deque[tuple[SimTask, Piece]] = field(default_factory=deque)


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
        task.left = len(task.pieces)
        heapq.heappush(self._queue, ((kind, number), next(self._order), task))

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
        return within and generator.held < self._credit

    def pump(self) -> None:
        """Send what credit and limit allow."""
        while self._queue:
            free = [generator for generator in self._generators if self._may_get(generator)]
            if not free:
                return
            generator = min(free, key=lambda g: (g.sequences, g.held))
            _, _, task = heapq.heappop(self._queue)
            generator.held += 1
            generator.sequences += len(task.pieces)
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
        generator.queue.extend((task, piece) for piece in task.pieces)
        self._fill(generator)

    def _fill(self, generator: _Generator) -> None:
        while generator.queue and generator.active < self._slots:
            task, piece = generator.queue.popleft()
            generator.active += 1
            self._timeline.after(piece.slot_s, partial(self._decoded, generator, task, piece))

    def _decoded(self, generator: _Generator, task: SimTask, piece: Piece) -> None:
        generator.active -= 1
        self._fill(generator)
        if piece.other_s > 0.0:
            self._timeline.after(piece.other_s, partial(self._in, generator, task))
        else:
            self._in(generator, task)

    def _in(self, generator: _Generator, task: SimTask) -> None:
        self.times.episodes += task.is_play
        generator.sequences -= 1
        task.left -= 1
        if not task.left:
            generator.held -= 1
            task.finished()
