"""The work of a run that was, from its ledger: the same pieces again under other settings.

What was not in when the run ended has no time. It is not left out, for it is the long pieces that
are still out: one that took at least as long stands in for it, of those whose fate was settled. By
the bound, every group born `bound + 1` steps before the last one was trained, short or long.

What is taken as given, whatever the settings: how long a piece holds a slot (an engine that decodes
more at once is not slower here), what the jail and the link add, the learner's time per sample, and
the time from a step's end to its weights in a generator.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

from spade_async.coordinator.replay import design_and_offset
from spade_async.errors import LedgerError
from spade_async.ledger import LedgerReader, StepTime
from spade_async.simulate.durations import mean
from spade_async.simulate.recorded_times import RecordedTimes
from spade_async.simulate.workload import Design, Play

FEWEST_STEPS = 4
"""Steps after the warm-up below which a step time means nothing."""
_FEWEST_GROUPS = 4


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
        replays: dict[int, dict[int, Play]],
        steps: list[StepTime],
        latency_s: float,
    ) -> None:
        """See `recorded_workload`."""
        self._designs, self._pool_plays, self._replays = designs, pool_plays, replays
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

    def replay(self, design: int, offset: int) -> Play:
        """See `Workload`; one that was not is as another of the design, or its first play."""
        known = self._replays.get(design % len(self._designs), {})
        if not known:
            return Play(self.play(design).plain)
        return known[min(known, key=lambda at: abs(at - offset))]

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
        plays += [play for known in self._replays.values() for play in known.values()]
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
    ledger: LedgerReader, span: Span, agent_bound: int, designer_bound: int, *, block: int = 0
) -> RecordedWorkload:
    """Everything of a run in order of admission; `block` pairs were given out together (0: all).

    Raises:
        LedgerError: no timings, or too little was settled.
    """
    steps = _finished(ledger, span)
    last = max((step.ordinal for step in steps), default=0)
    times = RecordedTimes(ledger, last - designer_bound - 1, last - agent_bound - 1, block=block)
    if times.num_settled < _FEWEST_GROUPS or not any(step.loaded_unix_s for step in steps):
        raise LedgerError(
            f"ledger {ledger.path}: of {last} steps, {times.num_settled} play groups were born and "
            f"trained {agent_bound + 1} steps before the last one; a replay needs "
            f"{_FEWEST_GROUPS}: let it run longer"
        )
    designs: list[tuple[Design, Play | None]] = []
    pool_plays: list[Play] = []
    replays: dict[int, dict[int, Play]] = {}
    numbers: dict[str, int] = {}
    for group_id, kind, members in ledger.query(
        "SELECT group_id, kind, members FROM groups WHERE kind IN ('design', 'pool', 'replay')"
        " ORDER BY rowid"
    ):
        if kind == "pool":
            pool_plays.append(times.one_arm(group_id))
        elif kind == "replay":
            task_id, offset = design_and_offset(group_id)
            replays.setdefault(numbers[task_id], {})[offset] = times.one_arm(group_id)
        else:
            for index in range(members):
                numbers[f"{group_id}.{index}"] = len(designs)
                designs.append(times.design(f"{group_id}.{index}"))
    return RecordedWorkload(designs, pool_plays, replays, steps, times.latency_s())


def _finished(ledger: LedgerReader, span: Span) -> list[StepTime]:
    return [
        step
        for step in ledger.step_times()
        if step.trained_unix_s is not None and span[0] <= step.taken_unix_s < span[1]
    ]
