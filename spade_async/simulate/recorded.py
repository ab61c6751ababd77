"""The work of a run that was, from its ledger: the same pieces again under other settings.

What was not in when the run ended has no time. It is not left out, for it is the long pieces that
are still out: one that took at least as long stands in for it, of those whose fate was settled. By
the bound, every group born `bound + 1` steps before the last one was trained, short or long.

What is taken as given, whatever the settings: how long a piece holds a slot (an engine that decodes
more at once is not slower here), what the jail and the link add, the learner's time per sample, and
the time from a step's end to its weights in a generator.
"""

from __future__ import annotations

import bisect
import itertools
import random
import statistics
from dataclasses import dataclass

from spade_async.errors import LedgerError
from spade_async.ledger import STILL_OUT, LedgerReader, StepTime, TaskTime
from spade_async.simulate.durations import mean
from spade_async.simulate.workload import Design, Piece, Play
from spade_async.types import Arm

FEWEST_STEPS = 4
"""Steps after the warm-up below which a step time means nothing."""
_FEWEST_GROUPS = 4
_NEIGHBOURS = 16
"""Pieces sent just before another that say how long that one waited for its slot."""


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """Step times of the run itself."""

    warm_up: int
    """Steps before these: the pipeline fills, or an earlier start of the run did them."""
    num_steps: int
    step_s: float
    """Mean seconds from the end of one step to the end of the next."""
    learner_idle_share: float | None
    """By the learner's own clock."""


class RecordedWorkload:
    """Pieces in order of admission; when they are all used, from the first again."""

    def __init__(
        self,
        designs: list[tuple[Design, Play | None]],
        pool_plays: list[Play],
        steps: list[StepTime],
        latency_s: float,
    ) -> None:
        """See `recorded_workload`."""
        self._designs, self._pool_plays = designs, pool_plays
        self._learner = _LearnerTimes(steps)
        self._swaps_s = [
            step.loaded_unix_s - step.trained_unix_s
            for step in steps
            if step.loaded_unix_s is not None and step.trained_unix_s is not None
        ]
        self.latency_s = latency_s
        """Median seconds from sending a task to its start."""

    def design(self, number: int) -> Design:
        """See `Workload`."""
        return self._designs[number % len(self._designs)][0]

    def play(self, design: int) -> Play:
        """See `Workload`."""
        play = self._designs[design % len(self._designs)][1]
        assert play is not None, f"design {design} was not played"
        return play

    def pool_play(self, number: int) -> Play:
        """See `Workload`; a run without pool plays gives the trained arm of its designs' plays."""
        if self._pool_plays:
            return self._pool_plays[number % len(self._pool_plays)]
        plays = [play for _, play in self._designs if play is not None]
        return Play(plays[number % len(plays)].plain)

    def learner_s(self, step: int, num_samples: int) -> float:
        """See `Workload`."""
        return self._learner.of(step, num_samples)

    def swap_s(self, step: int) -> float:
        """See `Workload`."""
        return self._swaps_s[step % len(self._swaps_s)]

    @property
    def summary(self) -> dict[str, float]:
        """What was found, for people: numbers of pieces and mean seconds."""
        plays = [play for _, play in self._designs if play is not None] + self._pool_plays
        episodes = [piece for play in plays for piece in (*play.plain, *play.hinted)]
        pieces = [design.piece for design, _ in self._designs]
        return {
            "designs": len(pieces),
            "design_slot_s": mean(piece.slot_s for piece in pieces),
            "design_other_s": mean(piece.other_s for piece in pieces),
            "played_share": mean(design.is_played for design, _ in self._designs),
            "episodes": len(episodes),
            "episode_slot_s": mean(piece.slot_s for piece in episodes),
            "episode_other_s": mean(piece.other_s for piece in episodes),
            "learner_s": self._learner.mean_s,
            "swap_s": mean(self._swaps_s),
            "latency_s": self.latency_s,
        }


class _LearnerTimes:
    """Seconds of a step, taken from the steps that were, corrected for the size of the batch.

    From a batch's sending to its report, and what the coordinator needs between a report and the
    next batch when that is ready: its commits.
    """

    def __init__(self, steps: list[StepTime]) -> None:
        self._seen = [
            (step.num_samples, step.trained_unix_s - step.taken_unix_s)
            for step in steps
            if step.trained_unix_s is not None
        ]
        pause_s = _pause_s(steps)
        self._seen = [(num, seconds + pause_s) for num, seconds in self._seen]
        self.mean_s = mean(seconds for _, seconds in self._seen)
        mean_n = mean(n for n, _ in self._seen)
        spread = sum((n - mean_n) ** 2 for n, _ in self._seen)
        slope = 0.0
        if spread > 0.0:
            slope = sum((n - mean_n) * (s - self.mean_s) for n, s in self._seen) / spread
        # Between no effect of the size at all and all of it.
        self._per_sample_s = min(max(slope, 0.0), self.mean_s / mean_n if mean_n else 0.0)

    def of(self, step: int, num_samples: int) -> float:
        seen, seconds = self._seen[step % len(self._seen)]
        return max(seconds + self._per_sample_s * (num_samples - seen), 0.0)


def _pause_s(steps: list[StepTime]) -> float:
    """Median seconds between a report and the next batch, over those that did not wait for one.

    When all did (bound 0), the time from a report to the publication stands for it: the commits.
    """
    longest_s = mean(s.trained_unix_s - s.taken_unix_s for s in steps if s.trained_unix_s) / 10.0
    gaps_s = [
        after.taken_unix_s - before.trained_unix_s
        for before, after in itertools.pairwise(steps)
        if before.trained_unix_s is not None
    ]
    at_once = [gap for gap in gaps_s if gap <= longest_s]
    if not at_once:
        at_once = [
            step.published_unix_s - step.trained_unix_s
            for step in steps
            if step.published_unix_s is not None and step.trained_unix_s is not None
        ]
    return statistics.median(at_once) if at_once else 0.0


Span = tuple[float, float]
"""Unix seconds of a start of the run and of its end."""


def measured_steps(ledger: LedgerReader, span: Span, bound: int) -> MeasuredSteps:
    """Step time of a run in one of its starts, without the filling of the pipeline.

    Raises:
        LedgerError: no timings, or too few steps.
    """
    times = _finished(ledger, span)
    warm_up = bound + 1
    num_steps = len(times) - warm_up
    if num_steps < FEWEST_STEPS:
        raise LedgerError(
            f"ledger {ledger.path} has {len(times)} steps of one start; with a bound of "
            f"{bound} a replay needs at least {warm_up + FEWEST_STEPS}: let it run longer"
        )
    ends = [step.trained_unix_s for step in times if step.trained_unix_s is not None]
    span_s = ends[-1] - ends[warm_up - 1]
    busy = [step.busy_s for step in times[warm_up:] if step.busy_s is not None]
    idle = 1.0 - sum(busy) / span_s if len(busy) == num_steps else None
    return MeasuredSteps(warm_up, num_steps, span_s / num_steps, idle)


def recorded_workload(
    ledger: LedgerReader, span: Span, agent_bound: int, designer_bound: int
) -> RecordedWorkload:
    """Everything of a run in order of admission.

    Raises:
        LedgerError: no timings, or too little was settled.
    """
    if ledger.query("SELECT 1 FROM groups WHERE kind = 'replay' LIMIT 1"):
        raise LedgerError(
            f"ledger {ledger.path}: its designs were played again at later steps "
            "(designer.reward.delay), which the simulated schedule does not do: take a run without"
        )
    steps = _finished(ledger, span)
    last = max((step.ordinal for step in steps), default=0)
    times = _Times(ledger, last - designer_bound - 1, last - agent_bound - 1)
    if times.num_settled < _FEWEST_GROUPS or not any(step.loaded_unix_s for step in steps):
        raise LedgerError(
            f"ledger {ledger.path}: of {last} steps, {times.num_settled} play groups were born and "
            f"trained {agent_bound + 1} steps before the last one; a replay needs "
            f"{_FEWEST_GROUPS}: let it run longer"
        )
    designs: list[tuple[Design, Play | None]] = []
    pool_plays: list[Play] = []
    for group_id, kind, members in ledger.query(
        "SELECT group_id, kind, members FROM groups WHERE kind IN ('design', 'pool') ORDER BY rowid"
    ):
        if kind == "pool":
            pool_plays.append(Play(times.arm(group_id, Arm.NO_HINT)))
        else:
            designs += [times.design(f"{group_id}.{index}") for index in range(members)]
    return RecordedWorkload(designs, pool_plays, steps, times.latency_s())


class _Times:
    """Times of a ledger's pieces, with a stand-in for each that was not in when the run ended."""

    def __init__(self, ledger: LedgerReader, design_births: int, play_births: int) -> None:
        """Groups up to these births are settled."""
        self._tasks = {(task.task_id, task.position): task for task in ledger.task_times()}
        self._end_s = max((task.finished_unix_s for task in self._tasks.values()), default=0.0)
        self._groups: dict[str, int] = {}
        """Members of each group."""
        self._episodes = 0
        """Of a play in one arm."""
        settled: dict[str, list[Piece]] = {"design": [], "play": []}
        self.num_settled = self._num_designs = self._num_played = 0
        births = {"design": design_births, "play": play_births, "pool": play_births}
        settled_groups: set[str] = set()
        for group_id, kind, members, birth, state in ledger.query(
            "SELECT group_id, kind, members, birth_ordinal, state FROM groups"
        ):
            self._groups[group_id] = members
            if kind != "design":
                self._episodes = max(self._episodes, members)
            if state == "trained" and birth <= births[kind]:
                settled_groups.add(group_id)
                self.num_settled += kind != "design"
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
        arms = (self.arm(play_id, Arm.NO_HINT), self.arm(play_id, Arm.WITH_HINT))
        return Design(piece, is_played=True), Play(*arms)

    def arm(self, group_id: str, arm: Arm) -> tuple[Piece, ...]:
        """The episodes of one arm."""
        return tuple(
            self._piece("play", f"{group_id}.{arm}", position)
            for position in range(self._groups.get(group_id, self._episodes))
        )

    def _piece(self, kind: str, task_id: str, position: int) -> Piece:
        task = self._tasks.get((task_id, position))
        if task is not None:
            return _measured(task)
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


def _finished(ledger: LedgerReader, span: Span) -> list[StepTime]:
    return [
        step
        for step in ledger.step_times()
        if step.trained_unix_s is not None and span[0] <= step.taken_unix_s < span[1]
    ]


def _measured(task: TaskTime) -> Piece:
    spent_s = task.finished_unix_s - task.started_unix_s
    other_s = max(spent_s - task.queue_s - task.engine_s, 0.0)
    return Piece(task.engine_s, other_s, task.num_tokens)
