"""When the pieces of a run happened, from its ledger, with a stand-in for each that was still out.

A play whose class was decided early has the pairs that were played; the task of a later block names
the pair it begins with. One whose fate was open when the run ended gets the number of pairs of
another that had as many.
"""

from __future__ import annotations

import bisect
import random
import statistics
from dataclasses import dataclass

from spade_async.coordinator import blocks
from spade_async.ledger import STILL_OUT, LedgerReader, TaskTime
from spade_async.ledger.hints import HINTS
from spade_async.simulate.durations import mean
from spade_async.simulate.workload import Design, Piece, Play
from spade_async.types import Arm

_NEIGHBOURS = 16
"""Pieces sent just before another that say how long that one waited for its slot."""


@dataclass(frozen=True, slots=True)
class _Count:
    """Pairs of a play, and why there were no more."""

    num_pairs: int
    is_stopped: bool
    is_dropped: bool


class RecordedTimes:
    """Times of a ledger's pieces, with a stand-in for each that was not in when the run ended."""

    def __init__(
        self, ledger: LedgerReader, design_births: int, play_births: int, *, block: int = 0
    ) -> None:
        """Groups up to these births are settled; `block` pairs were given out together (0: all)."""
        self._ledger, self._block = ledger, block
        self._tasks = {_place(task.task_id, task.position): task for task in ledger.task_times()}
        self._end_s = max((task.finished_unix_s for task in self._tasks.values()), default=0.0)
        self._groups: dict[str, int] = {}
        """Members of each group."""
        self._episodes = 0
        """Of a play in one arm."""
        settled: dict[str, list[Piece]] = {"design": [], "play": []}
        self.num_settled = self._num_designs = self._num_played = 0
        dropped, old = set(), set()
        settled_groups: set[str] = set()
        for group_id, kind, members, birth, state in ledger.query(
            "SELECT group_id, kind, members, birth_ordinal, state FROM groups"
        ):
            self._groups[group_id] = members
            if kind != "design":
                self._episodes = max(self._episodes, members)
            if state == "missing":
                dropped.add(group_id)
            if birth <= (design_births if kind == "design" else play_births):
                old.add(group_id)
                if state == "trained":
                    settled_groups.add(group_id)
                    self.num_settled += kind != "design"
        self._counts = {
            row.group_id: _Count(
                row.num_played, row.is_stopped, row.is_stopped and row.group_id in dropped
            )
            for row in ledger.regrets()
        }
        # Among the last groups those with few pairs are measured first: they say nothing.
        self._old_counts = [count for name, count in self._counts.items() if name in old]
        for task in self._tasks.values():
            if task.group_id in settled_groups:
                kind = "design" if task.kind == "design" else "play"
                settled[kind].append(_measured(task))
                if task.kind == "design":
                    self._num_designs += 1
                    self._num_played += f"{task.task_id}.play" in self._groups
        self._still_out: dict[str, float] = ledger.get_state(STILL_OUT, {})
        self._slot_waits_s: dict[str, list[tuple[float, float]]] = {
            kind: sorted(
                (
                    task.dispatched_unix_s,
                    task.started_unix_s + task.queue_s - task.dispatched_unix_s,
                )
                for task in self._tasks.values()
                if (task.kind == "design") == (kind == "design")
            )
            for kind in settled
        }
        """(sent, seconds until it held a slot) of what was in."""
        self._stand_ins = {kind: _StandIns(pieces) for kind, pieces in settled.items()}
        self._rng = random.Random(0)

    def latency_s(self) -> float:
        """Median seconds from sending a task to its start."""
        waits = [task.started_unix_s - task.dispatched_unix_s for task in self._tasks.values()]
        return max(statistics.median(waits), 0.0)

    def design(self, task_id: str) -> tuple[Design, Play | None]:
        """A design with its play, if it has one."""
        play_id = f"{task_id}.play"
        piece = self._piece("design", task_id, 0)
        is_in = (task_id, 0) in self._tasks
        if play_id in self._groups:
            is_played = True
        elif is_in:
            # Also a valid one that still waited for its place: few, and at the end only.
            is_played = False
        else:
            is_played = self._rng.random() * self._num_designs < self._num_played
        if not is_played:
            return Design(piece, is_played=False), None
        count = self._count(play_id)
        arms = [self._arm(play_id, arm, count.num_pairs) for arm in (Arm.NO_HINT, Arm.WITH_HINT)]
        if self._ledger.hint_rule(task_id.rpartition(".")[0]) != HINTS:
            return Design(piece, is_played=True), Play(arms[0])
        play = Play(arms[0], arms[1], self._block, count.is_stopped, count.is_dropped)
        return Design(piece, is_played=True), play

    def one_arm(self, group_id: str) -> Play:
        """A play without hints: of the pool, or of a design at a later offset."""
        return Play(self._arm(group_id, Arm.NO_HINT, self._groups[group_id]))

    def _count(self, play_id: str) -> _Count:
        """How many pairs there were; of one that is not measured, as many as of another."""
        found = self._counts.get(play_id)
        if found is not None:
            return found
        whole = _Count(self._groups.get(play_id, self._episodes), False, False)
        if not self._block:
            return whole
        issued = 0
        for arm in Arm:
            starts = range(0, whole.num_pairs, self._block)
            tasks = {start: blocks.task_id(play_id, arm, start) for start in starts}
            for start, task_id in tasks.items():
                pieces = ((f"{play_id}.{arm}", start + i) for i in range(self._block))
                if task_id in self._still_out or any(piece in self._tasks for piece in pieces):
                    issued = max(issued, start + self._block)
        longer = [count for count in self._old_counts if count.num_pairs >= issued]
        return self._rng.choice(longer) if longer else whole

    def _arm(self, group_id: str, arm: Arm, num: int) -> tuple[Piece, ...]:
        name = f"{group_id}.{arm}"
        return tuple(self._piece("play", name, position) for position in range(num))

    def _piece(self, kind: str, name: str, position: int) -> Piece:
        """`name` is that of the arm's first task, `position` that of the pair."""
        task = self._tasks.get((name, position))
        if task is not None:
            return _measured(task)
        start = position // self._block * self._block if self._block and kind == "play" else 0
        task_id = f"{name}{blocks.MARK}{start}" if start else name
        return self._stand_ins[kind].longer_than(self._held_s(kind, task_id), self._rng)

    def _held_s(self, kind: str, task_id: str) -> float:
        """How long a piece that was not in had held its slot, as far as is known; 0 if it waited.

        Requests of one engine start in the order of their sending: one sent at the same time as
        another waited as long for its slot.
        """
        sent_s = self._still_out.get(task_id)
        if sent_s is None:
            return 0.0
        waits_s = self._slot_waits_s[kind]
        nearest = bisect.bisect_left(waits_s, (sent_s, 0.0))
        before = waits_s[max(nearest - _NEIGHBOURS, 0) : nearest]
        wait_s = mean(wait for _, wait in before) if before else 0.0
        return max(self._end_s - sent_s - wait_s, 0.0)


class _StandIns:
    """Settled pieces, to stand in for those that were still out."""

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = sorted(pieces, key=_total_s)
        self._totals_s = [_total_s(piece) for piece in self._pieces]

    def longer_than(self, seconds: float, rng: random.Random) -> Piece:
        """One that takes longer than this, else the longest."""
        first = bisect.bisect_right(self._totals_s, seconds)
        return self._pieces[rng.randrange(min(first, len(self._pieces) - 1), len(self._pieces))]


def _total_s(piece: Piece) -> float:
    return piece.slot_s + piece.other_s


def _place(task_id: str, position: int) -> tuple[str, int]:
    """(first task of the arm, index in its group) of an episode; a design is alone in its task."""
    start = blocks.start_of(task_id)
    return task_id.partition(blocks.MARK)[0] if start else task_id, start + position


def _measured(task: TaskTime) -> Piece:
    spent_s = task.finished_unix_s - task.started_unix_s
    other_s = max(spent_s - task.queue_s - task.engine_s, 0.0)
    return Piece(task.engine_s, other_s, task.num_tokens)
